"""Many ranks: processes under MPI, or simulated in one; and torch.distributed's names.

`run` calls a function on simulated ranks; `world()` is the communicator of the calling rank.
"""

from ridgeline.communicators.calls import Call as Call, CommunicationError as CommunicationError
from ridgeline.communicators.current import world as world
from ridgeline.communicators.interface import Communicator as Communicator, Work as Work
from ridgeline.distributed import discovery as discovery, functional as functional
from ridgeline.distributed.checkpoints import (
    find_checkpoint as find_checkpoint,
    load_checkpoint as load_checkpoint,
    save_checkpoint as save_checkpoint,
)
from ridgeline.distributed.in_place import (
    all_gather as all_gather,
    all_gather_into_tensor as all_gather_into_tensor,
    all_reduce as all_reduce,
    all_to_all as all_to_all,
    all_to_all_single as all_to_all_single,
    broadcast as broadcast,
    gather as gather,
    reduce as reduce,
    reduce_scatter as reduce_scatter,
    reduce_scatter_tensor as reduce_scatter_tensor,
    scatter as scatter,
)
from ridgeline.distributed.local import local as local
from ridgeline.distributed.mesh import Mesh as Mesh
from ridgeline.distributed.messages import (
    P2POp as P2POp,
    all_gather_object as all_gather_object,
    batch_isend_irecv as batch_isend_irecv,
    broadcast_object_list as broadcast_object_list,
    gather_object as gather_object,
    irecv as irecv,
    isend as isend,
    recv as recv,
    recv_object_list as recv_object_list,
    scatter_object_list as scatter_object_list,
    send as send,
    send_object_list as send_object_list,
)
from ridgeline.distributed.parallelize import parallelize as parallelize
from ridgeline.distributed.placing import (
    full_tensor as full_tensor,
    place as place,
    placements as placements,
)
from ridgeline.distributed.plan import Plan as Plan
from ridgeline.distributed.process_groups import (
    GroupMember as GroupMember,
    ProcessGroup as ProcessGroup,
    ReduceOp as ReduceOp,
    barrier as barrier,
    destroy_process_group as destroy_process_group,
    get_backend as get_backend,
    get_default_backend_for_device as get_default_backend_for_device,
    get_global_rank as get_global_rank,
    get_group_rank as get_group_rank,
    get_local_rank as get_local_rank,
    get_node_local_rank as get_node_local_rank,
    get_process_group_ranks as get_process_group_ranks,
    get_rank as get_rank,
    get_world_size as get_world_size,
    group as group,
    init_process_group as init_process_group,
    is_available as is_available,
    is_gloo_available as is_gloo_available,
    is_initialized as is_initialized,
    is_mpi_available as is_mpi_available,
    is_nccl_available as is_nccl_available,
    is_torchelastic_launched as is_torchelastic_launched,
    monitored_barrier as monitored_barrier,
    new_group as new_group,
)
from ridgeline.distributed.simulation import run as run
from ridgeline.module_paths import unknown as _unknown
from ridgeline.ops.placed import Partial as Partial, Replicate as Replicate, Shard as Shard

_all_gather_base, _reduce_scatter_base = all_gather_into_tensor, reduce_scatter_tensor
__getattr__ = _unknown(__name__)
