from .harness import print_rows as print_rows
from .harness import write_rows as write_rows
from .rows import quick as quick
from .rows import side_by_side as side_by_side
from .shares import time_shares as time_shares
