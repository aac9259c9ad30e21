// Answers per CPU second of the DNS server of a node beside dnsmasq, asked by dnsperf: names that
// exist, names that do not exist, and both by TCP.
// Needs the Debian packages dnsmasq-base and dnsperf.
import { execFile, fork, spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { BENCH_DOMAIN, benchServices } from './dns-names.js';
import { readCpuSeconds } from './process-figures.js';
import { printReport, summarise } from './report.js';
import { Violations } from './violations.js';

/** Seconds of each measurement. */
const SECONDS = Number(process.argv[2] ?? 5);
/** Measurements of each server, alternating, because the load of the machine changes. */
const ROUNDS = 3;
/** Answers per CPU second that the DNS server of a node must reach by UDP. */
const GOAL = 30_000;

const run = promisify(execFile);
const violations = new Violations();
const directory = mkdtempSync(join(tmpdir(), 'cloudless-bench-dns-'));
const services = benchServices();

interface Subject {
  readonly name: string;
  readonly port: number;
  readonly process: ChildProcess;
}

async function startCloudless(): Promise<Subject> {
  const child = fork(fileURLToPath(new URL('dns-subject.ts', import.meta.url)), {
    execArgv: ['--import', 'tsx', '--conditions=@cloudless/source'],
  });
  const [{ port }] = (await once(child, 'message')) as [{ port: number }];
  return { name: 'cloudless', port, process: child };
}

/** Starts dnsmasq with the same names from a hosts file, without forwarding and with its cache. */
async function startDnsmasq(): Promise<Subject> {
  const port = await freePort();
  const hosts = join(directory, 'hosts');
  writeFileSync(hosts, services.map(({ address, dnsName }) => `${address} ${dnsName}`).join('\n'));
  const child = spawn('dnsmasq', [
    ...['--keep-in-foreground', '--conf-file=/dev/null', '--no-resolv', '--no-hosts'],
    ...[`--port=${port}`, '--listen-address=127.0.0.1', '--bind-interfaces', '--user=', '--group='],
    ...[`--addn-hosts=${hosts}`, `--local=/${BENCH_DOMAIN}/`, '--local-ttl=5', '--pid-file='],
  ]);
  await once(child, 'spawn');
  return { name: 'dnsmasq', port, process: child };
}

async function freePort(): Promise<number> {
  const server = createServer().listen({ host: '127.0.0.1', port: 0 });
  await once(server, 'listening');
  const address = server.address();
  server.close();
  return typeof address === 'object' && address !== null ? address.port : 0;
}

interface Figures {
  readonly answersPerCpuSecond: number;
  readonly answersPerSecond: number;
  readonly lost: number;
}

async function measure(subject: Subject, file: string, mode: string): Promise<Figures> {
  const before = readCpuSeconds(subject.process.pid ?? 0);
  const { stdout } = await run('dnsperf', [
    ...['-s', '127.0.0.1', '-p', String(subject.port), '-d', file, '-m', mode],
    ...['-l', String(SECONDS), '-c', '8', '-q', '100'],
  ]);
  const cpuSeconds = readCpuSeconds(subject.process.pid ?? 0) - before;
  const number = (label: string): number =>
    Number(new RegExp(`${label}:\\s+([\\d.]+)`).exec(stdout)?.[1] ?? NaN);
  const completed = number('Queries completed');
  const expected = file.endsWith('missing') ? 'NXDOMAIN' : 'NOERROR';
  const matching = Number(new RegExp(`${expected} (\\d+)`).exec(stdout)?.[1] ?? 0);
  violations.check(
    matching === completed,
    `${subject.name} answers ${expected} to all questions of ${file}: ${matching} of ${completed}`,
  );
  return {
    answersPerCpuSecond: completed / cpuSeconds,
    answersPerSecond: number('Queries per second'),
    lost: number('Queries lost'),
  };
}

function writeQuestions(name: string, questions: readonly string[]): string {
  const file = join(directory, name);
  writeFileSync(file, questions.join('\n'));
  return file;
}

const existing = writeQuestions(
  'existing',
  services.map(({ dnsName }) => `${dnsName} A`),
);
const missing = writeQuestions(
  'missing',
  services.map(({ dnsName }) => `no-${dnsName} A`),
);
const subjects = [await startCloudless(), await startDnsmasq()];
const results: Record<string, Record<string, unknown>> = {};
try {
  for (const [title, file, mode] of [
    ['existing names, UDP', existing, 'udp'],
    ['missing names, UDP', missing, 'udp'],
    ['existing names, TCP', existing, 'tcp'],
  ] as const) {
    const figures = new Map<string, Figures[]>(subjects.map(({ name }) => [name, []]));
    for (let round = 0; round < ROUNDS; round += 1) {
      for (const subject of subjects) {
        figures.get(subject.name)?.push(await measure(subject, file, mode));
      }
    }
    results[title] = Object.fromEntries(
      [...figures].map(([name, rounds]) => [
        name,
        {
          answersPerCpuSecond: summarise(rounds.map((each) => each.answersPerCpuSecond)),
          answersPerSecond: summarise(rounds.map((each) => each.answersPerSecond)),
          lost: rounds.reduce((sum, { lost }) => sum + lost, 0),
        },
      ]),
    );
    const own = summarise((figures.get('cloudless') ?? []).map((each) => each.answersPerCpuSecond));
    if (mode === 'udp') {
      violations.check(own.median >= GOAL, `${title}: at least ${GOAL} answers per CPU second`);
    }
  }
} finally {
  for (const { process: child } of subjects) child.kill();
  rmSync(directory, { recursive: true });
}
printReport('dns', {
  services: services.length,
  seconds: SECONDS,
  goal: GOAL,
  ...results,
  violations: violations.texts,
});
process.exit(violations.exitCode());
