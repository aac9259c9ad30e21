// Renews certificates with a lifetime of seconds under load, with a rotation of the certificate
// authority in between, and ends with an error when a call fails, a stream breaks or a replica
// restarts. --minutes N (default 5), --lifetime SECONDS of all certificates (default 30),
// --cri-socket PATH also runs containers with an identity (default: processes only).
import { setMaxListeners } from 'node:events';
import { parseArgs } from 'node:util';
import {
  CertificateAuthorityRotation_Phase as RotationPhase,
  type CertificateAuthority,
} from '@cloudless/api';
import { errorMessageOf, sleep } from '@cloudless/base';
import { CertificateUser, SecureCluster } from '@cloudless/e2e';
import { systemClock } from '@cloudless/app-kit';
import { LogFollower } from './log-follower.js';
import { printReport } from './report.js';
import {
  CallLoad,
  ConnectionLoad,
  ExecLoad,
  LogCommandLoad,
  RolloutLoad,
  WorkloadCertificateLoad,
  retryWhileOverloaded,
  splitPem,
  type Load,
} from './rotate-load.js';
import { Violations } from './violations.js';

const { values } = parseArgs({
  options: {
    minutes: { type: 'string' },
    lifetime: { type: 'string' },
    'cri-socket': { type: 'string' },
  },
});
const minutes = Number(values.minutes ?? 5);
const lifetimeMs = Number(values.lifetime ?? 30) * 1_000;
const criSocket = values['cri-socket'];
/** Part of the run after which the rotation of the certificate authority begins. */
const ROTATION_AT = 1 / 3;
/** Longest time that the run goes on for a rotation that has not ended, milliseconds. */
const ROTATION_GRACE_MS = 60_000;
const CALLS_PER_SECOND = 100;
const PROCESS_AGENTS = ['agent-1', 'agent-2', 'agent-3'];
/** Runs containers only, so that it gives them identities. */
const CONTAINER_AGENT = 'agent-4';
const AGENTS = criSocket === undefined ? PROCESS_AGENTS : [...PROCESS_AGENTS, CONTAINER_AGENT];
const NUMBERED_LINES = [
  'node',
  '-e',
  `let n = 0; setInterval(() => console.log('n ' + ++n), 50);
   process.on('SIGTERM', () => process.exit(0));`,
];
const SERVER = [
  'node',
  '-e',
  `require('node:http').createServer((request, response) => response.end()).listen(process.env.PORT, '127.0.0.1');
   process.on('SIGTERM', () => process.exit(0));`,
];
const QUICK = { preStopDelay: { seconds: 0n }, rollout: { minReadyDuration: { seconds: 0n } } };
const PORTS = [{ name: 'http', containerPort: 80 }];
/** Workloads that must keep their replicas, each without a restart. */
const STEADY = ['steady', 'talker', ...(criSocket === undefined ? [] : ['identity'])];

const violations = new Violations();
const log = (text: string): void =>
  void process.stderr.write(`${new Date().toISOString()} ${text}\n`);

async function createWorkloads({ clients }: CertificateUser): Promise<void> {
  const specs: Readonly<Record<string, object>> = {
    steady: { command: SERVER, ports: PORTS, replicas: 3 },
    talker: { command: NUMBERED_LINES },
    rolling: { ...QUICK, command: SERVER, ports: PORTS, replicas: 3 },
    written: { command: NUMBERED_LINES, replicas: 0 },
    ...(criSocket === undefined
      ? {}
      : {
          identity: {
            ...{ image: 'busybox:1', command: ['sleep', '100000'], replicas: 2 },
            ...{ identity: {}, terminationGracePeriod: { seconds: 0n } },
          },
        }),
  };
  for (const [name, spec] of Object.entries(specs))
    await clients.coordinator.createWorkload({ name, spec });
}

/** Returns id and restarts of every replica of the workloads that must not change. */
async function listSteadyReplicas(user: CertificateUser): Promise<readonly string[]> {
  const { workloads } = await user.clients.coordinator.listWorkloads({ includeReplicas: true });
  return workloads
    .filter(({ name }) => STEADY.includes(name))
    .flatMap(({ name, status }) =>
      (status?.replicas ?? []).map(
        ({ id, restarts, nodeId, containerId }) =>
          `${name} ${id} on ${nodeId} in ${containerId.slice(0, 12)}: ${restarts} restarts`,
      ),
    )
    .sort();
}

/** Rotates the certificate authority and waits for the end of the rotation. */
async function rotate(user: CertificateUser, signal: AbortSignal): Promise<CertificateAuthority> {
  const { identities } = user.clients;
  const call = <Reply>(send: () => Promise<Reply>): Promise<Reply> =>
    retryWhileOverloaded(send, () => undefined);
  let authority = await call(() => identities.rotateCertificateAuthority({}));
  let newestPhase: RotationPhase | undefined;
  for (;;) {
    const { rotation } = authority;
    if (rotation?.phase !== newestPhase) {
      newestPhase = rotation?.phase;
      log(`rotation: ${RotationPhase[newestPhase ?? 0]}`);
    }
    if (newestPhase === RotationPhase.COMPLETED || signal.aborted) return authority;
    await sleep(systemClock, 250, signal).catch(() => undefined);
    authority = await call(() => identities.getCertificateAuthority({}));
  }
}

/** Number of lines with a message in the log of every agent. */
function countLogs(cluster: SecureCluster, message: string): Readonly<Record<string, number>> {
  return Object.fromEntries(
    AGENTS.map((name) => [
      name,
      cluster.requireAgent(name).lines.filter((line) => line.includes(`"message":"${message}"`))
        .length,
    ]),
  );
}

/** Lines of warnings and errors of the coordinator and the agents, without times. */
function listProblems(cluster: SecureCluster, level: 'warn' | 'error'): readonly string[] {
  const programs = [cluster.coordinator, ...AGENTS.map((name) => cluster.requireAgent(name))];
  return programs.flatMap(({ lines }) =>
    lines.filter((line) => line.includes(`"level":"${level}"`)),
  );
}

const flag = `${lifetimeMs / 1_000}s`;
const cluster = await SecureCluster.start({
  agents: PROCESS_AGENTS,
  ...(criSocket === undefined ? {} : { criSocket }),
  coordinatorFlags: [
    ...['--node-certificate-lifetime', flag, '--user-certificate-lifetime', flag],
    ...['--workload-certificate-lifetime', flag, '--server-certificate-lifetime', flag],
  ],
});
try {
  if (criSocket !== undefined) await cluster.startAgent(CONTAINER_AGENT, '--deny-processes');
  const login = await cluster.login();
  if (login.code !== 0) throw new Error(`login failed: ${login.stderr}`);
  const user = await CertificateUser.login(cluster.url, cluster.adminToken);
  const { coordinator: client } = user.clients;
  await createWorkloads(user);
  for (const name of [...STEADY, 'rolling']) await cluster.waitUntilSettled(name);
  const before = await listSteadyReplicas(user);
  const { status } = await client.getWorkload({ name: 'talker' });
  const follower = new LogFollower(client, status?.replicas[0]?.containerId ?? '', 0);
  const workloadCertificates = new WorkloadCertificateLoad(client, 'identity');
  const loads: Readonly<Record<string, Load>> = {
    calls: new CallLoad(client, CALLS_PER_SECOND),
    newConnections: new ConnectionLoad(cluster, user, 500),
    exec: new ExecLoad(client, 'talker'),
    logCommand: new LogCommandLoad(cluster, 'talker'),
    rollouts: new RolloutLoad(client, 'rolling'),
    ...(criSocket === undefined ? {} : { workloadCertificates }),
  };
  const ending = new AbortController();
  setMaxListeners(0, ending.signal); // one for each wait
  const startedAt = systemClock.now();
  const endsAt = startedAt + minutes * 60_000;
  const running = Object.values(loads).map((load) => load.run(ending.signal));
  const rotation = sleep(systemClock, minutes * 60_000 * ROTATION_AT)
    .then(() => rotate(user, ending.signal))
    .catch((reason: unknown) => {
      violations.check(false, `rotation: ${errorMessageOf(reason)}`);
      return undefined;
    });
  let hasFailed = false;
  while (systemClock.now() < endsAt) {
    await sleep(systemClock, Math.min(15_000, endsAt - systemClock.now()));
    const failures = Object.entries(loads).flatMap(([name, load]) =>
      load.failures.map((text) => `${name}: ${text}`),
    );
    if (failures.length > 0 && !hasFailed) log(`first failure: ${failures[0]}`);
    hasFailed ||= failures.length > 0;
    log(
      `${Math.round((systemClock.now() - startedAt) / 1_000)} s: ${JSON.stringify(loads['calls']?.figures)}, ` +
        `${user.renewals} renewals of the user, ${failures.length} failures`,
    );
  }
  // On a busy machine the phases of the rotation take longer. The loads go on until its end.
  await Promise.race([rotation, sleep(systemClock, ROTATION_GRACE_MS)]);
  const after = await listSteadyReplicas(user).catch((reason: unknown) => [errorMessageOf(reason)]);
  const logLines = follower.lines;
  ending.abort();
  await Promise.all(running);
  const authority = await rotation;
  await follower.stop();

  for (const [name, { failures }] of Object.entries(loads))
    violations.check(
      failures.length === 0,
      `${name}: ${failures.length} failures, first: ${failures.slice(0, 3).join('; ')}`,
    );
  violations.check(user.failure === undefined, `renewal: ${describeFailure(user.failure)}`);
  violations.checkZero(follower.violations + follower.missingLines, 'lines missing in the log');
  violations.checkPace(logLines > minutes * 60 * 10, `only ${logLines} lines in the log`);
  violations.check(
    JSON.stringify(before) === JSON.stringify(after),
    `replicas changed: ${before.join(', ')} became ${after.join(', ')}`,
  );
  const hasEnded =
    authority?.rotation?.phase === RotationPhase.COMPLETED && authority.roots.length === 1;
  violations.checkPace(
    hasEnded,
    `the rotation has not ended: ${JSON.stringify(authority?.rotation, replaceBigint)}`,
  );
  const nodeRenewals = countLogs(cluster, 'certificate renewed');
  const expected = Math.floor((minutes * 60_000) / lifetimeMs);
  for (const [name, count] of Object.entries(nodeRenewals))
    violations.checkPace(
      count >= expected,
      `${name}: ${count} renewals, expected ${expected} or more`,
    );
  violations.checkPace(
    user.renewals >= expected,
    `user: ${user.renewals} renewals, expected ${expected}`,
  );
  for (const [name, count] of Object.entries(countLogs(cluster, 'session established')))
    violations.check(count === 1, `${name} has opened ${count} sessions`);
  const newRoot = splitPem(authority?.trustBundle ?? '')[0]?.fingerprint256 ?? '';
  if (criSocket !== undefined && hasEnded)
    violations.check(
      workloadCertificates.newestRoot === newRoot,
      'the workload has a certificate of the old root',
    );
  const errors = listProblems(cluster, 'error');
  const warnings = listProblems(cluster, 'warn');
  violations.check(errors.length === 0, `errors in logs: ${errors.slice(0, 3).join('\n')}`);
  await user.close();
  printReport('rotate', {
    ...{ minutes, lifetimeMs, callsPerSecond: CALLS_PER_SECOND, agents: AGENTS.length },
    renewals: {
      user: user.renewals,
      nodes: nodeRenewals,
      replicas: countLogs(cluster, 'certificate of the replica renewed'),
    },
    rotation: RotationPhase[authority?.rotation?.phase ?? 0],
    logLines,
    ...Object.fromEntries(Object.entries(loads).map(([name, { figures }]) => [name, figures])),
    steadyReplicas: after,
    warnings: warnings.slice(0, 10),
    warningCount: warnings.length,
    violations: violations.texts,
  });
} finally {
  await cluster.stop();
}
process.exitCode = violations.exitCode();

function describeFailure(reason: unknown): string {
  return reason === undefined ? 'none' : errorMessageOf(reason);
}

function replaceBigint(_key: string, value: unknown): unknown {
  return typeof value === 'bigint' ? String(value) : value;
}
