import { Code, ConnectError } from '@connectrpc/connect';
import type { Workload } from '@cloudless/api';
import type { CliSession } from '../../call/cli-session.js';
import { parseReplicaTarget } from '../../names.js';
import type { ReplicaTarget, WorkloadName } from '../../names.js';

/** A short name of a replica: name of the workload and number of the replica, such as `web-1`. */
const SHORT_NAME = /^(.+)-(\d+)$/;

/**
 * Returns the target that an operand names: as {@link parseReplicaTarget}, and the short name of a
 * replica (`web-1`, `shop/web-1`) when no workload has this name.
 * @throws {@link CliFailure} with exit code 2 for a text that is no name.
 */
export async function resolveReplicaTarget(
  session: CliSession,
  text: string,
): Promise<ReplicaTarget> {
  const target = parseReplicaTarget(text, session.settings.namespace);
  if (target.kind !== 'workload') return target;
  const { namespace, name } = target.workload;
  const [, workloadName = '', number = ''] = SHORT_NAME.exec(name) ?? [];
  if (workloadName === '') return target;
  // Workloads first: the name of a workload may end with a number.
  if ((await findWorkloadOrNone(session, target.workload)) !== undefined) return target;
  const workload = await findWorkloadOrNone(session, { namespace, name: workloadName });
  return workload === undefined
    ? target
    : { kind: 'replica', replicaId: `${workload.uid}-${Number(number)}` };
}

async function findWorkloadOrNone(
  session: CliSession,
  name: WorkloadName,
): Promise<Workload | undefined> {
  try {
    return await session.client.getWorkload(name, session.getCallOptions());
  } catch (reason) {
    if (reason instanceof ConnectError && reason.code === Code.NotFound) return undefined;
    throw reason;
  }
}
