import { ReplicaStatus_Phase as Phase } from '@cloudless/api';
import type { ReplicaStatus, Workload } from '@cloudless/api';
import type { CliSession } from '../call/cli-session.js';

/** Replicas of one page: the most that the API allows. */
const PAGE_SIZE = 1_000;
/** Most pages that are read for one failure: the log of a replica is worth a second or two. */
const MAX_PAGES = 50;
/** Time limit of one page, because the failure is shown after the search. */
const PAGE_TIMEOUT_MS = 3_000;
/** Ranks of {@link rankOf}. */
const [UNREADY, RESTARTED, FAILED] = [1, 2, 3] as const;
/** The searches in order: phases of replicas, and the highest rank that such a replica can have. */
const SEARCHES = [
  { phases: [Phase.FAILED], best: FAILED },
  { phases: [Phase.ASSIGNED, Phase.STARTING, Phase.RUNNING], best: RESTARTED },
];

/**
 * Returns the id of the replica whose log most likely explains a failure; empty when no replica of
 * the newest version that is not ready has a node. A failed replica comes first, then a replica
 * with restarts or failed starts. Of a workload whose status omits replicas, reads the others from
 * the coordinator: the status lists the oldest replicas, and those of a new version are the newest.
 */
export async function findSuspect(session: CliSession, workload: Workload): Promise<string> {
  const { replicas = [], omittedReplicas = 0 } = workload.status ?? {};
  let suspect = chooseSuspect(workload, replicas);
  if (omittedReplicas === 0) return suspect?.id ?? '';
  try {
    for (const { phases, best } of SEARCHES) {
      if (rankOf(suspect) >= best) break;
      for await (const page of listReplicas(session, workload, phases)) {
        const found = chooseSuspect(workload, page);
        if (rankOf(found) > rankOf(suspect)) suspect = found;
        if (rankOf(suspect) >= best) break;
      }
    }
  } catch {
    // The failure is reported also when the coordinator does not list the replicas.
  }
  return suspect?.id ?? '';
}

/** Returns how well the log of a replica explains a failure; 0 without a replica. */
function rankOf(replica: ReplicaStatus | undefined): number {
  if (replica === undefined) return 0;
  if (replica.phase === Phase.FAILED) return FAILED;
  return replica.restarts + replica.failedStarts > 0 ? RESTARTED : UNREADY;
}

/** Returns the first of the replicas with the highest rank. */
function chooseSuspect(
  { status }: Workload,
  replicas: readonly ReplicaStatus[],
): ReplicaStatus | undefined {
  return replicas
    .filter(({ version, ready, nodeId }) => version === status?.version && !ready && nodeId !== '')
    .reduce<ReplicaStatus | undefined>(
      (best, replica) => (rankOf(replica) > rankOf(best) ? replica : best),
      undefined,
    );
}

/** Reads the replicas of a workload in some phases, page by page. */
async function* listReplicas(
  session: CliSession,
  { namespace, name, uid }: Workload,
  phases: readonly Phase[],
): AsyncGenerator<readonly ReplicaStatus[]> {
  let pageToken = '';
  for (let pages = 0; pages < MAX_PAGES; pages += 1) {
    const page = await session.client.listReplicas(
      { namespace, name, phases: [...phases], pageSize: PAGE_SIZE, pageToken },
      session.getCallOptions(PAGE_TIMEOUT_MS),
    );
    // A workload that was meanwhile deleted and created again has another uid.
    yield page.workloads.filter((group) => group.uid === uid).flatMap(({ replicas }) => replicas);
    pageToken = page.nextPageToken;
    if (pageToken === '') return;
  }
}
