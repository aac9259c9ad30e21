import type { SimulateClusterRequest, SimulateClusterResponse } from '@cloudless/api';
import { resolveSimulatedChanges } from '@cloudless/api-server/what-if';
import {
  simulateCluster,
  explainImpossibleLimits,
  readSnapshot,
  redactSpec,
} from '@cloudless/controllers/what-if';
import type { LocalSession } from '../../call/local-session.js';
import { readChunks } from '../admin/backup-file.js';
import { withExitCode } from '../admin/with-exit-code.js';

/** Node evaluations of a simulation that has a process of its own: about 3 minutes. */
const LIMITS = { slice: 1_000_000, total: 40_000_000 };

/**
 * Simulates changes of a snapshot, in this process.
 * @param path - A file of `admin snapshot`.
 */
export async function simulateSnapshot(
  session: LocalSession,
  path: string,
  { changes }: SimulateClusterRequest,
): Promise<SimulateClusterResponse> {
  const clock = { wallTime: () => session.nowMs };
  return withExitCode(async () => {
    const source = (await readSnapshot(readChunks(path))).createSource(clock);
    const resolved = resolveSimulatedChanges(
      { explainImpossibleLimits, clock },
      source.view,
      changes,
    );
    // The snapshot has no environment, commands or arguments: a manifest is compared without them.
    const workloads = resolved.workloads.map((subject) => ({
      ...subject,
      spec: redactSpec(subject.spec),
    }));
    const steps = simulateCluster(source, { ...resolved, workloads }, LIMITS);
    let next = steps.next();
    while (next.done !== true) next = steps.next();
    return next.value;
  }, path);
}
