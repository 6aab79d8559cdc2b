from factfold.stack.artifacts import (
    delta_jars as delta_jars,
    spark_jars as spark_jars,
)
from factfold.stack.errors import (
    ArtifactError as ArtifactError,
    ServerFailed as ServerFailed,
    StackBusy as StackBusy,
    StackError as StackError,
    StackNotUp as StackNotUp,
)
from factfold.stack.java import start_lightly as start_lightly
from factfold.stack.local import LocalStack as LocalStack
from factfold.stack.state import StackInfo as StackInfo
