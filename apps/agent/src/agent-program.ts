import { Command, type OptionValues } from 'commander';
import { CloudlessError } from '@cloudless/base';
import { OTLP_ENDPOINT_VARIABLE } from '@cloudless/observability';
import { addSettingFlags, type SettingNames } from '@cloudless/app-kit/settings';
import { BUILD } from '@cloudless/app-kit';
import type { AgentConfig } from './agent-config.js';
import { JOIN_TOKEN_VARIABLE } from './tls-settings.js';

const flags: Readonly<Record<keyof AgentConfig, readonly [string, string]>> = {
  name: ['--name <name>', 'id of this node (default: the host name)'],
  coordinator: [
    '--coordinator <url[,url]>',
    'addresses of coordinators, tried one after the other; http:// only on this machine (default http://127.0.0.1:8080)',
  ],
  joinTokenFile: [
    '--join-token-file <path>',
    'file with the join token of this machine, which is needed once for https://; - reads standard input',
  ],
  joinToken: [
    '--join-token <token>',
    `the join token itself; other users of this machine can see the token in lists of processes (default $${JOIN_TOKEN_VARIABLE})`,
  ],
  dataDir: [
    '--data-dir <path>',
    'where the agent keeps its data (default $XDG_STATE_HOME/cloudless/agent-<name>, or below ~/.local/state)',
  ],
  listen: [
    '--listen <host:port>',
    'serve AgentService at this address; loopback only without TLS; port 0: a free port',
  ],
  region: ['--region <name>', 'region of the node'],
  zone: ['--zone <name>', 'zone of the node: machines that can fail together'],
  label: ['--label <key=value...>', 'label of the node; may be repeated'],
  taint: [
    '--taint <key=value:EFFECT...>',
    'taint of the node, with effect NO_SCHEDULE, PREFER_NO_SCHEDULE or NO_EXECUTE; may be repeated',
  ],
  maxReplicas: ['--max-replicas <count>', 'maximum number of replicas (default 110)'],
  startConcurrency: [
    '--start-concurrency <count>',
    'maximum number of concurrent container starts (default twice the processors, at least 4)',
  ],
  reserveCpu: ['--reserve-cpu <cores>', 'CPU reserved for the system: 0.5 or 500m (default 0)'],
  reserveMemory: ['--reserve-memory <amount>', 'memory reserved for the system: 512Mi (default 0)'],
  reserveStorage: [
    '--reserve-storage <amount>',
    'disk space reserved for the system: 20Gi (default 0)',
  ],
  bandwidth: [
    '--bandwidth <bits>',
    'egress bandwidth of this machine in bits per second that workloads may request: 100M, 1G (default 0)',
  ],
  customResource: [
    '--custom-resource <name=amount...>',
    'custom resource of this machine that workloads may request, such as example.com/license=4; may be repeated',
  ],
  portRange: [
    '--port-range <from-to>',
    'ports that are assigned to workloads (default 20000-29999)',
  ],
  runtime: [
    '--runtime <name>',
    'process: plain processes only; cri: containers too, required; auto: containers if a runtime is found (default auto)',
  ],
  criSocket: [
    '--cri-socket <path>',
    'socket of the container runtime (default: the first usual socket of containerd or CRI-O that answers)',
  ],
  denyProcesses: ['--deny-processes', 'start no processes (command), only containers (image)'],
  allowPrivileged: ['--allow-privileged', 'allow privileged containers on this machine'],
  allowDevice: [
    '--allow-device <path[,path]>',
    'devices of this machine that containers may use (default none)',
  ],
  allowSysctl: [
    '--allow-sysctl <name[,name]>',
    'kernel parameters that containers may set in addition to the safe ones (default none)',
  ],
  allowHostPath: [
    '--allow-host-path <path[,path]>',
    'directories of this machine that containers may mount (default none)',
  ],
  maxPids: [
    '--max-pids <count>',
    'limit of processes and threads for workloads that set none (default 4096)',
  ],
  stopWorkloadsOnExit: [
    '--stop-workloads-on-exit',
    'stop all workloads when the agent stops; for clusters that are being removed',
  ],
  logLevel: ['--log-level <level>', 'error, warn, info or debug (default info)'],
  logFormat: [
    '--log-format <format>',
    'auto, json or pretty; auto is pretty on a terminal and json elsewhere (default auto)',
  ],
  opsListen: [
    '--ops-listen <host:port>',
    'serve /health, /ready and /metrics at this address; loopback only without TLS; port 0: a free port',
  ],
  network: [
    '--network <mode>',
    'on, off or auto: the network proxy, with which workloads of this node reach services; auto: on Linux (default auto)',
  ],
  meshListen: [
    '--mesh-listen <host:port|none>',
    'where the network proxies of other nodes connect with mutual TLS; port 0: a free port; none: this node only dials out, and coordinators relay (default: port 9443 at the address with which this machine reaches its coordinator; none on loopback or without TLS)',
  ],
  meshAdvertise: [
    '--mesh-advertise <ip:port>',
    'address at which other nodes reach the listener of --mesh-listen (default: its address)',
  ],
  ingressHttp: [
    '--ingress-http <host:port>',
    'serve HTTP routes at this address, such as 0.0.0.0:80 (default: not served)',
  ],
  ingressHttps: [
    '--ingress-https <host:port>',
    'serve HTTP routes with TLS at this address, such as 0.0.0.0:443 (default: not served)',
  ],
  otlpEndpoint: [
    '--otlp-endpoint <url>',
    `OTLP/HTTP receiver of traces (default $${OTLP_ENDPOINT_VARIABLE}, else none)`,
  ],
  traceShare: [
    '--trace-share <share>',
    'share of the connections to services and of the HTTP requests of routes that is traced, 0 to 1 (default 0.01)',
  ],
};

/** Flag names and environment prefix of the settings. */
export const settingNames: SettingNames = { flags, envPrefix: 'CLOUDLESS_AGENT_' };

/** Actions of the commands for users. The agent itself starts two more commands, see `main.ts`. */
export interface AgentActions {
  run(options: OptionValues): void;
  reset(options: OptionValues): void;
  print(text: string): void;
}

/** Creates the command line of the agent. It throws a CommanderError while it parses `--help`. */
export function createAgentProgram(actions: AgentActions): Command {
  const program = new Command('cloudless-agent')
    .description('Runs the replicas of a Cloudless cluster on this machine.')
    .version(BUILD)
    .usage('<command> [flags]')
    .enablePositionalOptions()
    .exitOverride();
  const run = program
    .command('run')
    .description('enrol this machine with a coordinator and run its replicas, until a signal')
    .exitOverride();
  addSettingFlags(run, settingNames);
  run.action((options: OptionValues) => actions.run(options));
  program
    .command('reset')
    .description('remove an agent from its cluster: stop its workloads and delete its data')
    .option(...flags.name)
    .option(...flags.dataDir)
    .exitOverride()
    .action((options: OptionValues) => actions.reset(options));
  program
    .command('version')
    .description('print the version')
    .action(() => actions.print(`${BUILD}\n`));
  return program.addHelpText('after', () => `\n${run.helpInformation()}`);
}

/** Flags that the program accepts without a command. */
const PROGRAM_FLAGS = ['-h', '--help', '-V', '--version'];

/**
 * Rejects flags without a command. Only `run` enrols the machine, so that a user who looks for help
 * does not do so by accident.
 * @param args - Arguments after the name of the program.
 * @throws kind `invalid` with the command line that `run` needs.
 */
export function requireCommand(args: readonly string[]): void {
  const [first = ''] = args;
  if (!first.startsWith('-') || PROGRAM_FLAGS.includes(first)) return;
  throw new CloudlessError(
    'invalid',
    `${first}: flags follow a command; run the agent with "cloudless-agent run ${first} …", or see --help`,
  );
}
