// A join storm of many simulated agents in other processes, each over its own connection; then the
// time until the coordinator detects that some of them are gone, by reset and by silence; then a
// restart of the coordinator with all agents reconnecting at once. With --secure, every agent joins
// with a token and connects with mutual TLS.
import { join as joinPath } from 'node:path';
import { NodeStatus_Phase as Phase, type CoordinatorClient } from '@cloudless/api';
import { createSeededRandom, definedFields, sleep } from '@cloudless/base';
import { RealCluster } from '@cloudless/e2e';
import { systemClock } from '@cloudless/app-kit';
import { AgentProcesses } from './member-processes.js';
import { NodeObserver } from './node-observer.js';
import { readCpuSeconds, readMemoryBytes } from './process-figures.js';
import { printReport, summarise } from './report.js';
import { createAdminAccess } from './token-access.js';
import { Violations } from './violations.js';

const secure = process.argv.includes('--secure');
const AGENTS = Number(process.argv.slice(2).find((text) => /^\d+$/.test(text)) ?? 5_000);
/** Share of the agents for each kind of failure. */
const FAILING_SHARE = 0.01;
/** Duration of the measurement at rest, milliseconds. */
const REST_MS = 20_000;
/** Time within which all agents must be back after a restart of the coordinator, seconds. */
const RETURN_LIMIT_S = 60;
const SEED = 1;

/** Records a violation when a watch failed, because losses would go unnoticed. */
function checkWatchEnd(signal: AbortSignal, reason: unknown): void {
  violations.check(signal.aborted, `the watch of nodes ended: ${String(reason)}`);
}

const toSeconds = (ms: number): number => Math.round(ms / 10) / 100;
const formatNodeId = (index: number): string => `node-${index + 1}`;
const violations = new Violations();
const indexes = Array.from({ length: AGENTS }, (_, index) => index);

const cluster = await RealCluster.start([], undefined, {
  coordinatorFlags: secure ? ['--tls', 'on'] : [],
});
/** Returns a new client, and with --secure a join token for all agents. */
const openAccess = async (): Promise<{ client: CoordinatorClient; joinToken?: string }> => {
  if (!secure) return { client: cluster.client };
  const dataDir = joinPath(cluster.directory, 'coordinator');
  const { client, identities } = await createAdminAccess(cluster.url, dataDir);
  const { text } = await identities.createJoinToken({ maxUses: AGENTS });
  return { client, joinToken: text };
};
const agents = new AgentProcesses(AGENTS);
/** The coordinator whose end is a part of the benchmark. */
let killed: unknown;
/** Ends the benchmark when the coordinator ends by itself: its agents would never be ready then. */
function failWithoutCoordinator(): void {
  const program = cluster.coordinatorProcess;
  void program.exited.then((code) => {
    if (program === killed) return;
    process.stderr.write(
      `member: the coordinator ended with exit code ${code}; its last lines:\n${program.lines.slice(-10).join('\n')}\n`,
    );
    agents.kill();
    process.exit(1);
  });
}
const watching = new AbortController();
try {
  const observer = new NodeObserver();
  const access = await openAccess();
  void observer
    .watch(access.client, watching.signal)
    .catch((reason: unknown) => checkWatchEnd(watching.signal, reason));
  failWithoutCoordinator();
  const { pid } = cluster.coordinatorProcess;

  const startedAt = systemClock.now();
  await agents.start(cluster.url, definedFields({ joinToken: access.joinToken }));
  await observer.waitForPhases(indexes.map(formatNodeId), [Phase.READY]);
  const join = {
    seconds: toSeconds(systemClock.now() - startedAt),
    cpuSeconds: readCpuSeconds(pid),
    losses: observer.losses,
  };

  const cpuBefore = readCpuSeconds(pid);
  await sleep(systemClock, REST_MS);
  const rest = {
    cpuShareOfOneCore:
      Math.round(((readCpuSeconds(pid) - cpuBefore) / (REST_MS / 1_000)) * 1_000) / 1_000,
    memoryMb: Math.round(readMemoryBytes(pid) / 1e6),
    losses: observer.losses,
  };

  const random = createSeededRandom(SEED);
  const shuffled = indexes
    .map((index) => ({ index, at: random.next() }))
    .sort((a, b) => a.at - b.at);
  const failingCount = Math.max(1, Math.round(AGENTS * FAILING_SHARE));
  const shuffledIndexes = shuffled.map(({ index }) => index);
  const measureDetection = async (
    failingIndexes: readonly number[],
    failure: 'reset' | 'silence',
    phases: readonly Phase[],
  ) => {
    const atMs = await agents.fail(failingIndexes, failure);
    return summarise(
      (await observer.waitForPhases(failingIndexes.map(formatNodeId), phases)).map(
        (at) => at - atMs,
      ),
    );
  };
  const reset = await measureDetection(shuffledIndexes.slice(0, failingCount), 'reset', [
    Phase.DISCONNECTED,
    Phase.LOST,
  ]);
  const silence = await measureDetection(
    shuffledIndexes.slice(failingCount, 2 * failingCount),
    'silence',
    [Phase.LOST],
  );
  await observer.waitForPhases(shuffledIndexes.slice(0, failingCount).map(formatNodeId), [
    Phase.LOST,
  ]);
  const falseLosses = observer.losses - 2 * failingCount;

  watching.abort();
  const agentsCpuBefore = agents.readCpuSeconds();
  killed = cluster.coordinatorProcess;
  await cluster.coordinatorProcess.kill('SIGKILL');
  const restartedAt = systemClock.now();
  await cluster.startCoordinator();
  failWithoutCoordinator();
  const accessAfterRestart = await openAccess();
  const observerAfterRestart = new NodeObserver();
  const watchingAgain = new AbortController();
  void observerAfterRestart
    .watch(accessAfterRestart.client, watchingAgain.signal)
    .catch((reason: unknown) => checkWatchEnd(watchingAgain.signal, reason));
  const returningNodes = new Set(shuffledIndexes.slice(2 * failingCount).map(formatNodeId));
  await observerAfterRestart.waitForPhases([...returningNodes], [Phase.READY]);
  const returnSeconds = toSeconds(systemClock.now() - restartedAt);
  const returnCpuSeconds = readCpuSeconds(cluster.coordinatorProcess.pid);
  const agentsCpuSeconds = agents.readCpuSeconds() - agentsCpuBefore;
  const lostAgain = observerAfterRestart.countLosses(returningNodes);
  watchingAgain.abort();
  const memoryBytes = await agents.readMemoryBytes();

  violations.checkZero(join.losses, 'nodes lost while all joined');
  violations.checkZero(rest.losses - join.losses, 'nodes lost at rest');
  violations.checkZero(falseLosses, 'nodes lost that were well, in all');
  violations.checkZero(
    lostAgain,
    'nodes lost that were well, after the restart of the coordinator',
  );
  violations.check(
    returnSeconds <= RETURN_LIMIT_S,
    `all agents were back ${returnSeconds} s after the restart, must be within ${RETURN_LIMIT_S} s`,
  );
  printReport('member', {
    agents: AGENTS,
    secure,
    connectionsPerAgent: 1,
    seed: SEED,
    join,
    rest,
    seenMs: { reset, silence },
    falseLosses,
    coordinatorRestart: {
      secondsUntilAllAreBack: returnSeconds,
      cpuSeconds: returnCpuSeconds,
      agentsCpuSeconds: Math.round(agentsCpuSeconds * 10) / 10,
      falseLosses: lostAgain,
    },
    agentProcesses: agents.count,
    agentsMemoryMb: Math.round(memoryBytes / 1e6),
    violations: violations.texts,
  });
} finally {
  watching.abort();
  killed = cluster.coordinatorProcess;
  agents.kill();
  await cluster.stop();
}
process.exit(violations.exitCode());
