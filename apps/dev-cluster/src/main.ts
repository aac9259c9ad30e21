import { existsSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pc from 'picocolors';
import { errorFields, errorMessageOf, quoteForShell, StoppedError } from '@cloudless/base';
import { endBySignal, VERSION } from '@cloudless/app-kit';
import { jsonToPrettyLine } from '@cloudless/observability/format';
import { onBrokenOutput } from './broken-output.js';
import { runDemo } from './demo.js';
import { startDevCluster, type DevCluster } from './dev-cluster.js';
import { formatHelp, parseFlags, type Flags } from './flags.mjs';
import { Guard, GUARD_ARGUMENT, runGuard } from './guard.js';
import { describeRuntime } from './describe-runtime.js';
import { CommandLine } from './run-command.js';
import type { SecureAccess } from './secure-access.js';

/** Exit code for an invalid command line. */
const EXIT_USAGE = 2;
/** Exit code that shells report after SIGINT: 128 + 2. */
const EXIT_INTERRUPTED = 130;
/** Signals that stop the cluster in an orderly way. */
const END_SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
type EndSignal = (typeof END_SIGNALS)[number];

const write = (text: string): void => void process.stdout.write(text);

/** Runs the dev cluster, or the guard of another dev cluster. Returns the exit code. */
async function main(argv: readonly string[]): Promise<number> {
  if (argv[2] === GUARD_ARGUMENT) {
    await runGuard(process.stdin);
    return 0;
  }
  const parsed = parseFlags(argv.slice(2));
  if (parsed.kind === 'invalid') return failUsage(parsed.message);
  if (parsed.kind !== 'run') {
    write(parsed.kind === 'help' ? formatHelp() : `${VERSION}\n`);
    return 0;
  }
  const { flags } = parsed;
  if (flags.example !== undefined && !existsSync(flags.example))
    return failUsage(`--example: file ${flags.example} does not exist`);
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
        isTemporary: flags.dataDir === undefined,
        guard,
        onWaiting: (names, elapsedMs) =>
          write(`Still starting ${names.join(', ')} (${Math.round(elapsedMs / 1_000)} s) …\n`),
        onRestart: (name) =>
          write(`${pc.yellow(`${name} has ended; it is restarted and adopts its workloads`)}\n`),
        onLine: (name, line) =>
          flags.verbose === true
            ? write(
                `${pc.dim(name)} ${jsonToPrettyLine(line, { colors: pc.isColorSupported }) ?? line}\n`,
              )
            : undefined,
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
  const { url, access } = cluster;
  const commands = new CommandLine(access ?? { server: url }, {
    write,
    signal,
    guard,
    hasTerminal: hasTerminal(flags),
  });
  const work = showExample(flags, commands);
  work.catch(() => undefined); // the result of interrupted work is not needed
  const endSignal = await Promise.race([work, interrupted]);
  if (endSignal !== undefined) return EXIT_INTERRUPTED;
  if (flags.demo === true) return 0;
  write(formatHints(cluster));
  await interrupted;
  return 0;
}

/**
 * Returns true when commands can write to the terminal of this program themselves. With `--verbose`
 * they cannot, because logs would destroy what they draw.
 */
function hasTerminal({ verbose }: Flags): boolean {
  return process.stdout.isTTY && process.stderr.isTTY && verbose !== true;
}

/** Applies the example, and runs the demo with `--demo`. */
async function showExample(flags: Flags, commands: CommandLine): Promise<undefined> {
  if (flags.example !== undefined) {
    await commands.run('apply', '-f', flags.example, '--wait');
    await commands.run('workload', 'list');
  }
  if (flags.demo === true) {
    await runDemo({ commands, write });
    write(`\n${pc.green('Demo finished: every step succeeded.')}\n`);
  }
  return undefined;
}

/** Prints the addresses of the cluster and how its agents run workloads. */
function describeCluster(
  { url, opsUrl, access, agents, containers }: DevCluster,
  { runtime }: Flags,
): void {
  const how = access === undefined ? 'in plaintext and' : 'with TLS and identities,';
  write(`\n${pc.bold('Cluster is up')}, ${how} for this machine only.\n`);
  write(`  API      ${url}   (Connect, gRPC, gRPC-Web)\n  Health   ${opsUrl}/health\n`);
  if (access !== undefined)
    write(`  Admin    ${access.configFile}\n  CA       ${access.bundleFile}\n`);
  write(`  Runtime  ${describeRuntime(containers, runtime)}\n`);
  for (const { name, zone, address } of agents) write(`  ${name}  ${zone}  ${address}\n`);
}

const CONTAINER_HINTS = `  npx cloudlessctl workload create web --image nginx:alpine --replicas 2 --port http=80 --wait
  npx cloudlessctl exec -it web -- sh
`;

const formatHints = ({ url, access, containers }: DevCluster): string => `
${pc.bold('Try, in another terminal:')}
${formatExport(url, access)}\
  npx cloudlessctl workload list
  npx cloudlessctl workload describe hello
  npx cloudlessctl scale hello 5 --wait
  npx cloudlessctl workload update hello --env GREETING='version two' --wait
  npx cloudlessctl logs -f hello
  npx cloudlessctl exec hello -- node -p process.env.PORT
  npx cloudlessctl explain hello
  npx cloudlessctl events --watch
${access === undefined ? '' : '  npx cloudlessctl whoami\n  npx cloudlessctl user create ada\n'}\
${'runtime' in containers ? CONTAINER_HINTS : ''}\
  ${formatCurl(access)} ${url}/cloudless.api.CoordinatorService/GetWorkload -H 'content-type: application/json' -d '{"name":"hello"}'

${pc.bold('Ctrl-C')} stops everything.
`;

function formatExport(url: string, access: SecureAccess | undefined): string {
  if (access !== undefined)
    return `  export CLOUDLESS_CONFIG=${quoteForShell(access.configFile)}\n`;
  return url === 'http://127.0.0.1:8080' ? '' : `  export CLOUDLESS_SERVER=${url}\n`;
}

/** Returns the beginning of a command that calls the API. The token is in no argument list. */
function formatCurl(access: SecureAccess | undefined): string {
  if (access === undefined) return 'curl -s';
  const token = `oauth2-bearer = $(cat ${quoteForShell(access.adminTokenFile)})`;
  return `echo "${token}" | curl -s -K - --cacert ${quoteForShell(access.bundleFile)}`;
}

/** Reports wrong usage. Returns the exit code. */
function failUsage(message: string): number {
  process.stderr.write(`${pc.red('dev-cluster:')} ${message}\n`);
  return EXIT_USAGE;
}

process.exitCode = await main(process.argv);
