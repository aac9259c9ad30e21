import { Code, ConnectError } from '@connectrpc/connect';
import type { Workload } from '@cloudless/api';
import { CliFailure, ExitCode } from '../../call/failure.js';
import type { CliSession } from '../../call/cli-session.js';
import type { WorkloadName } from '../../names.js';
import { findSimilar } from '../../suggest.js';

/** Workloads that are searched for a similar name: one page of a list. */
const SEARCHED_WORKLOADS = 1000;

/**
 * Returns a workload.
 * @throws {@link CliFailure} with exit code 3 when the workload does not exist; the message names a
 *   similar workload, if there is one.
 */
export async function findWorkload(session: CliSession, name: WorkloadName): Promise<Workload> {
  try {
    return await session.client.getWorkload(name, session.getCallOptions());
  } catch (reason) {
    if (!(reason instanceof ConnectError) || reason.code !== Code.NotFound) throw reason;
    const hint = await suggestWorkload(session, name);
    if (hint === undefined) throw reason;
    throw new CliFailure(ExitCode.notFound, `${reason.rawMessage}${hint}`, { cause: reason });
  }
}

/** Returns the end of an error message; undefined when no workload is similar. */
async function suggestWorkload(
  session: CliSession,
  { namespace, name }: WorkloadName,
): Promise<string | undefined> {
  const workloads = await session.client
    .listWorkloads({ pageSize: SEARCHED_WORKLOADS }, session.getCallOptions())
    .then((page) => page.workloads)
    .catch(() => []); // the first error is the one to report
  const elsewhere = workloads.find((workload) => workload.name === name);
  if (elsewhere !== undefined)
    return `; did you mean ${elsewhere.namespace}/${name} in the namespace ${elsewhere.namespace}?`;
  const isHere = (workload: Workload): boolean => workload.namespace === namespace;
  const here = findSimilar(
    name,
    workloads.filter(isHere).map((workload) => workload.name),
  );
  if (here !== undefined) return `; did you mean ${here}?`;
  const others = workloads.filter((workload) => !isHere(workload));
  const similar = findSimilar(
    name,
    others.map((workload) => workload.name),
  );
  const other = others.find((workload) => workload.name === similar);
  return other === undefined ? undefined : `; did you mean ${other.namespace}/${other.name}?`;
}
