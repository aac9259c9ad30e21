import { CloudlessError } from '@cloudless/base';
import { OTLP_ENDPOINT_VARIABLE } from '@cloudless/observability';
import { addSettingFlags, type SettingNames } from '@cloudless/settings';
import { Command, type OptionValues } from 'commander';
import type { AgentConfig } from './config.js';
import { VERSION } from './version.js';

const flags: Readonly<Record<keyof AgentConfig, readonly [string, string]>> = {
  name: ['--name <name>', 'id of this node (default: the host name)'],
  coordinator: [
    '--coordinator <url[,url]>',
    'coordinators, tried in turn (default http://127.0.0.1:8080)',
  ],
  dataDir: [
    '--data-dir <path>',
    'default $XDG_STATE_HOME/cloudless/agent-<name>, below ~/.local/state',
  ],
  listen: [
    '--listen <host:port>',
    'serve AgentService there; loopback only; port 0 lets the system choose',
  ],
  region: ['--region <name>', 'where the machine is'],
  zone: ['--zone <name>', 'what fails together with it'],
  label: ['--label <key=value...>', 'label of the node'],
  taint: [
    '--taint <key=value:EFFECT...>',
    'keeps off what does not tolerate it: NO_SCHEDULE, PREFER_NO_SCHEDULE, NO_EXECUTE',
  ],
  maxReplicas: ['--max-replicas <count>', 'most replicas at a time (default 110)'],
  startConcurrency: [
    '--start-concurrency <count>',
    'containers being started at a time (default twice the processors, at least 4)',
  ],
  reserveCpu: ['--reserve-cpu <cores>', 'kept for the system: 0.5 or 500m (default 0)'],
  reserveMemory: ['--reserve-memory <amount>', 'kept for the system: 512Mi (default 0)'],
  portRange: ['--port-range <from-to>', 'ports given to workloads (default 20000-29999)'],
  runtime: [
    '--runtime <name>',
    'auto, process or cri: what runs beside plain processes (default auto: containers if it can)',
  ],
  criSocket: [
    '--cri-socket <path>',
    'of the container runtime (default: the first that answers of the usual places of containerd and CRI-O)',
  ],
  allowPrivileged: [
    '--allow-privileged',
    'let containers have all privileges of root on this machine',
  ],
  allowDevice: [
    '--allow-device <path[,path]>',
    'devices of this machine that containers may use (default none)',
  ],
  allowSysctl: [
    '--allow-sysctl <name[,name]>',
    'kernel parameters that containers may set beside the safe ones (default none)',
  ],
  allowHostPath: [
    '--allow-host-path <path[,path]>',
    'directories of this machine that containers may mount (default none)',
  ],
  maxPids: [
    '--max-pids <count>',
    'processes and threads of a container whose workload sets no limit (default 4096)',
  ],
  stopWorkloadsOnExit: [
    '--stop-workloads-on-exit',
    'end everything at the end of the agent; for clusters that are put away',
  ],
  logLevel: ['--log-level <level>', 'error, warn, info or debug (default info)'],
  logFormat: ['--log-format <format>', 'json or pretty (default json)'],
  opsListen: [
    '--ops-listen <host:port>',
    'serve /health, /ready and /metrics there; loopback only; port 0 lets the system choose',
  ],
  otlpEndpoint: [
    '--otlp-endpoint <url>',
    `receiver of traces, OTLP over HTTP (default $${OTLP_ENDPOINT_VARIABLE}, else none)`,
  ],
};

/** Names of the settings on the command line and in the environment. */
export const names: SettingNames = { flags, envPrefix: 'CLOUDLESS_AGENT_' };

/** One action for each command; `supervise` is the command that the agent itself runs. */
export interface AgentActions {
  run(options: OptionValues): void;
  reset(options: OptionValues): void;
  supervise(): void;
  print(text: string): void;
}

/**
 * Creates the command line of the agent. The help shows the flags of `run`, too: `run` may be
 * omitted before a flag.
 * @throws CommanderError while it parses, also for `--help`.
 */
export function createAgentProgram(actions: AgentActions): Command {
  const program = new Command('cloudless-agent')
    .description('Runs the replicas of a Cloudless cluster on this machine.')
    .version(VERSION)
    .enablePositionalOptions()
    .exitOverride();
  const run = program
    .command('run', { isDefault: true })
    .description('enrol this machine and run what it is told; may be left out before flags')
    .exitOverride();
  addSettingFlags(run, names);
  run.action((options: OptionValues) => actions.run(options));
  program
    .command('reset')
    .description('make an agent forget its cluster: end what it runs, remove its data')
    .option(...flags.name)
    .option(...flags.dataDir)
    .exitOverride()
    .action((options: OptionValues) => actions.reset(options));
  program
    .command('supervisor', { hidden: true })
    .allowUnknownOption()
    .allowExcessArguments()
    .action(() => actions.supervise());
  program
    .command('version')
    .description('print the version')
    .action(() => actions.print(`${VERSION}\n`));
  return program.addHelpText('after', () => `\n${run.helpInformation()}`);
}

/**
 * Refuses a call without any argument and setting: a user who calls the program by its name alone
 * looks for help, and must not enrol the machine.
 * @param words - The arguments after the name of the program.
 * @param env - One variable of the agent is enough.
 * @throws kind `invalid`.
 */
export function checkAsked(
  words: readonly string[],
  env: Readonly<Record<string, string | undefined>>,
): void {
  if (words.length > 0 || Object.keys(env).some((name) => name.startsWith(names.envPrefix))) return;
  const message =
    'no command and no setting was given. Run "cloudless-agent run" to enrol this machine with the coordinator at ' +
    'http://127.0.0.1:8080, name another coordinator with --coordinator, or see --help';
  throw new CloudlessError('invalid', message);
}
