import { readSnapshot, type ReadSnapshot } from '@cloudless/controllers/what-if';
import type { Invocation } from '../../command-tree.js';
import { formatCount } from '../../output/human.js';
import { hasFlag, requireOperand } from '../options.js';
import { withExitCode } from './with-exit-code.js';
import { writeVerified } from './backup-file.js';

/** Runs `admin snapshot`. */
export async function saveSnapshot(invocation: Invocation): Promise<void> {
  const { session } = invocation;
  const file = requireOperand(invocation, 0, 'file');
  const options =
    session.settings.timeoutMs === undefined
      ? session.getStreamOptions()
      : session.getCallOptions();
  const chunks = async function* (): AsyncGenerator<Uint8Array> {
    for await (const { data } of session.admin.snapshot({}, options)) yield data;
  };
  const isForced = hasFlag(invocation, 'force');
  const { header, nodes, workloads, replicas } = await withExitCode((): Promise<ReadSnapshot> =>
    writeVerified(file, chunks, isForced, readSnapshot),
  );
  const { clusterId, revision } = header;
  if (session.isStructured)
    return session.printValue({
      ...{ file, clusterId, revision: String(revision), nodes, workloads, replicas },
    });
  await session.print(
    `${file}: saved revision ${revision} of cluster ${clusterId}: ${formatCount(nodes, 'node')}, ${formatCount(workloads, 'workload')}, ${formatCount(replicas, 'replica')}\nsimulate with: cloudlessctl simulate --snapshot ${file}\n`,
  );
}
