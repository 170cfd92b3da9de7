"""What a person is shown: the paper's tables as data beside our counts and measurements, schemes and networks drawn."""
