from projections.logs.offsets import BatchSize as BatchSize
from projections.declaring.branches import branches as branches
from projections.branching.router import RouterMetrics as RouterMetrics
from projections.branching.router import (
    RouterOptions as RouterOptions,
    branch_counts as branch_counts,
    branches_status as branches_status,
    open_router as open_router,
)
from projections.branching.store_branches import branch_source as branch_source
from projections.letter_homes import letters as letters
from projections.declaring.columns import on as on
from projections.environment import Environment as Environment
from projections.declaring.group import ProjectionGroup as ProjectionGroup
from projections.declaring.view_topics import FinalResults as FinalResults
from projections.declaring.view_topics import (
    FinalTopic as FinalTopic,
    ViewTopic as ViewTopic,
)
from projections.declaring.predicates import field as field, of_type as of_type
from projections.lifecycle.cutover import diff as diff
from projections.lifecycle.cutover import (
    cut_over as cut_over,
    rollback as rollback,
)
from projections.lifecycle.rebuild import rebuild as rebuild
from projections.lifecycle.past import read_view as read_view, view_changes as view_changes
from projections.lifecycle.trying import try_view as try_view
from projections.lifecycle.verifying import ViewVerdict as ViewVerdict, verify as verify
from projections.spark.archive.archiver import ArchiveMetrics as ArchiveMetrics
from projections.lifecycle.follower import Follower as Follower
from projections.lifecycle.metrics import RunMetrics as RunMetrics
from projections.lifecycle.runner import (
    Runner as Runner,
    RunnerOptions as RunnerOptions,
    open_runner as open_runner,
)
from projections.stores.versions import AppliedVersions as AppliedVersions
from projections.spark.archive.archiver import open_archiver as open_archiver
from projections.spark.archive.verifying import release_topic as release_topic, verify_archive as verify_archive
from projections.spark.session import open_session as open_session
from projections.spark.timing.joins import (
    join_as_of as join_as_of,
    join_within as join_within,
)
from projections.spark.timing.matching import match_pattern as match_pattern
from projections.spark.timing.windowing import sliding as sliding
from projections.spark.views.as_of import join_versions as join_versions
from projections.connections import SparkSettings as SparkSettings
from projections.declaring.sql_views import sql_view as sql_view
from projections.declaring.streams import Stream as Stream
from projections.declaring.tables import Table as Table
from projections.stores.compared import ComparedGroup as ComparedGroup
from projections.stores.explaining import explain as explain
from projections.stores.histories import rows_as_of as rows_as_of
from projections.declaring.timing.histories import history as history
from projections.declaring.timing.operands import (
    previous as previous,
    rows_of as rows_of,
)
from projections.declaring.timing.patterns import label as label
from projections.declaring.timing.promises import (
    Reach as Reach,
    Retain as Retain,
)
from projections.declaring.view_decorator import windowed as windowed
from projections.declaring.timing.windows import (
    cumulative as cumulative,
    hopping as hopping,
    session as session,
    tumbling as tumbling,
)
from projections.declaring.view_decorator import view as view
from projections.spark.archive.archiver import Archiver as Archiver
from projections.spark.live.incremental import BatchReport as BatchReport
