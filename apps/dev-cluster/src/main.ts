import { existsSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Command, CommanderError, InvalidArgumentError, Option } from 'commander';
import pc from 'picocolors';
import { errorFields, errorMessageOf, StoppedError } from '@cloudless/base';
import { endBySignal } from '@cloudless/app-kit';
import { onBrokenOutput } from './broken-output.js';
import { runDemo } from './demo.js';
import { startDevCluster, type DevCluster } from './dev-cluster.js';
import { Guard, GUARD_ARGUMENT, runGuard } from './guard.js';
import { describeRuntime } from './describe-runtime.js';
import { CommandLine } from './run-command.js';

/** Exit code for an invalid command line. */
const EXIT_USAGE = 2;
/** Exit code that shells report after SIGINT: 128 + 2. */
const EXIT_INTERRUPTED = 130;
/** Signals that stop the cluster in an orderly way. */
const END_SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
type EndSignal = (typeof END_SIGNALS)[number];

/** The command line, see the descriptions of the flags below. */
interface Flags {
  readonly port: number;
  readonly opsPort: number;
  readonly agentPort: number;
  readonly workloadPort: number;
  readonly agents: number;
  readonly runtime: string;
  readonly criSocket?: string;
  readonly dataDir?: string;
  readonly example?: string;
  readonly demo?: true;
  readonly verbose?: true;
}

const write = (text: string): void => void process.stdout.write(text);

/** Runs the dev cluster, or the guard of another dev cluster. Returns the exit code. */
async function main(argv: readonly string[]): Promise<number> {
  if (argv[2] === GUARD_ARGUMENT) {
    await runGuard(process.stdin);
    return 0;
  }
  const command = new Command('dev-cluster')
    .description('One coordinator and several agents on this machine, in plaintext on loopback.')
    .option('--port <number>', 'port of the API', parsePort, 8080)
    .option('--ops-port <number>', 'port of /health, /ready and /metrics', parsePort, 8081)
    .option(
      '--agent-port <number>',
      "port of the first agent's API; the others follow",
      parsePort,
      9092,
    )
    .option('--workload-port <number>', 'first port for workloads', parsePort, 20_000)
    .option('--agents <number>', 'number of agents', parsePort, 3)
    .addOption(
      new Option(
        '--runtime <name>',
        'auto, process or cri: container runtime of the agents beside plain processes',
      )
        .choices(['auto', 'process', 'cri'])
        .default('auto'),
    )
    .option(
      '--cri-socket <path>',
      'socket of the container runtime; default: the first that answers',
    )
    .option(
      '--data-dir <path>',
      'data directory; default: a temporary directory that is removed at the end',
    )
    .option('--example <file>', 'manifest to apply after the start')
    .option('--demo', 'show the life of the example step by step, then stop')
    .option('--verbose', 'print the logs of all programs')
    .exitOverride();
  try {
    command.parse(argv as string[]);
  } catch (reason) {
    if (reason instanceof CommanderError) return reason.exitCode === 0 ? 0 : EXIT_USAGE;
    throw reason;
  }
  const flags = command.opts<Flags>();
  if (flags.example !== undefined && !existsSync(flags.example)) {
    process.stderr.write(`${pc.red('dev-cluster:')} file ${flags.example} does not exist\n`);
    return EXIT_USAGE;
  }
  const starting = new AbortController();
  let endObservation = (): void => undefined;
  const interrupted = new Promise<EndSignal>((resolve) => {
    for (const signal of END_SIGNALS) process.on(signal, () => resolve(signal));
    // A lost reader of the output and the end of the parent process count as a closed terminal.
    endObservation = onBrokenOutput(() => resolve('SIGHUP'));
    process.on('disconnect', () => resolve('SIGHUP'));
    process.channel?.unref();
  });
  void interrupted.then(() => starting.abort());
  const dataDir = flags.dataDir ?? (await mkdtemp(join(tmpdir(), 'cloudless-')));
  const guard = Guard.start();
  if (flags.dataDir === undefined) guard.registerTemporaryDirectory(dataDir);
  const stopping = new AbortController();
  let cluster: DevCluster | undefined;
  let endSignal: EndSignal | undefined;
  try {
    write(`Starting one coordinator and ${flags.agents} agents …\n`);
    cluster = await startDevCluster(
      {
        ...flags,
        dataDir,
        guard,
        onRestart: (name) =>
          write(`${pc.yellow(`${name} has ended; it is restarted and adopts its workloads`)}\n`),
        onLine: (name, line) =>
          flags.verbose === true ? write(`${pc.dim(name)} ${line}\n`) : undefined,
      },
      starting.signal,
    );
    describeCluster(cluster, flags);
    return await Promise.race([
      showUntilInterrupted(cluster, flags, interrupted, { signal: stopping.signal, guard }),
      cluster.failed,
    ]);
  } catch (reason) {
    // The start was interrupted. The process ends by the signal, because a thread that a file
    // system blocks would prevent a normal exit.
    if (cluster === undefined && reason instanceof StoppedError) endSignal = await interrupted;
    else process.stderr.write(`${pc.red('dev-cluster:')} ${errorMessageOf(reason)}\n`);
    if (flags.demo === true)
      for (const cause of errorFields(reason).causes ?? []) process.stderr.write(`  ${cause}\n`);
    return 1;
  } finally {
    stopping.abort();
    if (cluster !== undefined) {
      write('\nStopping workloads, agents and the coordinator …\n');
      await cluster.stop();
    }
    if (flags.dataDir === undefined) await rm(dataDir, { recursive: true, force: true });
    endObservation();
    await guard.close();
    if (endSignal !== undefined) endBySignal(endSignal);
  }
}

/**
 * Shows the example or the demo, then keeps the cluster running until a signal.
 * @param options - `signal` aborts the running command; `guard` ends the command after a crash.
 * @returns 130 when a signal interrupted the example or the demo, otherwise 0.
 */
async function showUntilInterrupted(
  cluster: DevCluster,
  flags: Flags,
  interrupted: Promise<EndSignal>,
  { signal, guard }: { readonly signal: AbortSignal; readonly guard: Guard },
): Promise<number> {
  const commands = new CommandLine(cluster.url, write, signal, guard);
  const work = showExample(cluster, flags, commands);
  work.catch(() => undefined); // the result of interrupted work is not needed
  const endSignal = await Promise.race([work, interrupted]);
  if (endSignal !== undefined) return EXIT_INTERRUPTED;
  if (flags.demo === true) return 0;
  write(formatHints(cluster));
  await interrupted;
  return 0;
}

/** Applies the example, and runs the demo with `--demo`. */
async function showExample(
  cluster: DevCluster,
  flags: Flags,
  commands: CommandLine,
): Promise<undefined> {
  if (flags.example !== undefined) {
    await commands.run('apply', '-f', flags.example, '--wait');
    await commands.run('workload', 'list');
  }
  if (flags.demo === true) {
    await runDemo({ url: cluster.url, commands, write });
    write(`\n${pc.green('Demo finished: every step succeeded.')}\n`);
  }
  return undefined;
}

/** Prints the addresses of the cluster and how its agents run workloads. */
function describeCluster(
  { url, opsUrl, agents, containers }: DevCluster,
  { runtime }: Flags,
): void {
  write(`\n${pc.bold('Cluster is up')}, in plaintext and for this machine only.\n`);
  write(`  API      ${url}   (Connect, gRPC, gRPC-Web)\n  Health   ${opsUrl}/health\n`);
  write(`  Runtime  ${describeRuntime(containers, runtime)}\n`);
  for (const { name, zone, address } of agents) write(`  ${name}  ${zone}  ${address}\n`);
}

const CONTAINER_HINTS = `  npx cloudlessctl workload create web --image nginx:alpine --replicas 2 --port http=80 --wait
  npx cloudlessctl exec -it web -- sh
`;

const formatHints = ({ url, containers }: DevCluster): string => `
${pc.bold('Try, in another terminal:')}
  npx cloudlessctl workload list
  npx cloudlessctl workload describe hello
  npx cloudlessctl scale hello 5 --wait
  npx cloudlessctl workload update hello --env GREETING='version two' --wait
  npx cloudlessctl logs -f hello
  npx cloudlessctl exec hello -- node -p process.env.PORT
  npx cloudlessctl explain hello
  npx cloudlessctl events --watch
${'runtime' in containers ? CONTAINER_HINTS : ''}\
  curl -s ${url}/cloudless.api.CoordinatorService/GetWorkload -H 'content-type: application/json' -d '{"name":"hello"}'
${url === 'http://127.0.0.1:8080' ? '' : `  (cloudlessctl finds this cluster with --server ${url})\n`}
${pc.bold('Ctrl-C')} stops everything.
`;

/** Parses a port, or a number of agents, from 0 to 65535. */
function parsePort(text: string): number {
  const value = Number(text);
  if (!/^\d+$/.test(text) || value > 65_535)
    throw new InvalidArgumentError('It must be a whole number from 0 to 65535.');
  return value;
}

process.exitCode = await main(process.argv);
