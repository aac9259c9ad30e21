import { availableParallelism, hostname } from 'node:os';
import { isAbsolute, join, normalize, resolve } from 'node:path';
import {
  InvalidInputError,
  oneOfField,
  parseConfig,
  switchField,
  textField,
  wholeNumberField,
  type ConfigField,
  type ConfigLayer,
  type Violation,
} from '@cloudless/base';
import { Taint_Effect } from '@cloudless/api';
import { isLoopbackHost } from '@cloudless/identity';
import { LOG_FORMATS, otlpEndpointField } from '@cloudless/observability';

import {
  parseBandwidth,
  parseCpu,
  parseCustomResources,
  parseMemory,
} from './resource-settings.js';
import { LABEL_KEY, parseList, parsePairs } from './setting-lists.js';
import { findNetworkConflicts, parseAdvertise, parseShare } from './network-settings.js';
import { findTlsConflicts, parseJoinToken } from './tls-settings.js';
import type { AgentTaint, AgentConfig } from './agent-config.js';

/**
 * Converts a host name to a DNS label, the default name of the node; `node` when nothing is left.
 */
export function defaultName(host: string = hostname()): string {
  const label = (host.split('.')[0] ?? '')
    .toLowerCase()
    .replace(/[^a-z0-9-]/g, '-')
    .replace(/^-+|-+$/g, '')
    .slice(0, 63);
  return label === '' ? 'node' : label;
}

/**
 * Returns the default number of concurrent starts: twice the processors, because starts are mostly
 * CPU work, and at least 4.
 */
export function defaultStartConcurrency(cpus: number = availableParallelism()): number {
  return Math.max(4, 2 * cpus);
}

/**
 * Returns the default data directory: `$XDG_STATE_HOME/cloudless/agent-<name>`, or else below
 * `~/.local/state`, or else below `.cloudless` in the current directory when there is no home.
 */
export function defaultDataDir(
  env: Readonly<Record<string, string | undefined>>,
  name: string,
): string {
  const home = env['HOME'];
  const base =
    env['XDG_STATE_HOME'] || (home === undefined ? '.cloudless' : join(home, '.local', 'state'));
  return resolve(base, 'cloudless', `agent-${name}`);
}

/**
 * Parses the settings. Later layers take precedence.
 * @param env - For the default data directory, see {@link defaultDataDir}.
 * @throws InvalidInputError naming every unknown key, invalid value and conflict.
 */
export function parseAgentConfig(
  layers: readonly ConfigLayer[],
  env: Readonly<Record<string, string | undefined>> = {},
): AgentConfig {
  const config = parseConfig<
    Omit<AgentConfig, 'dataDir'> & { readonly dataDir: string | undefined }
  >(
    {
      name: textField(defaultName(), {
        pattern: /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/,
        expected:
          'a DNS label: up to 63 lower-case letters, digits and "-", beginning and ending with a letter or digit',
      }),
      coordinator: { fallback: ['http://127.0.0.1:8080'], parse: parseCoordinators },
      joinToken: { fallback: undefined, parse: parseJoinToken },
      joinTokenFile: textField(undefined, { pattern: /./, expected: 'a path, or - for stdin' }),
      dataDir: textField(undefined, { pattern: /./, expected: 'a path' }),
      listen: { fallback: undefined, parse: parseListen },
      region: textField('', PLACE_FORMAT),
      zone: textField('', PLACE_FORMAT),
      label: { fallback: {}, parse: parseLabels },
      taint: { fallback: [], parse: parseTaints },
      maxReplicas: wholeNumberField(110, 0, 100_000),
      startConcurrency: wholeNumberField(defaultStartConcurrency(), 1, 10_000),
      reserveCpu: { fallback: 0, parse: parseCpu },
      reserveMemory: { fallback: 0, parse: parseMemory },
      reserveStorage: { fallback: 0, parse: parseMemory },
      bandwidth: { fallback: 0, parse: parseBandwidth },
      customResource: { fallback: {}, parse: parseCustomResources },
      portRange: { fallback: { from: 20_000, to: 29_999 }, parse: parsePortRange },
      runtime: oneOfField('auto', ['auto', 'process', 'cri']),
      criSocket: { fallback: undefined, parse: parseSocket },
      denyProcesses: switchField(false),
      allowPrivileged: switchField(false),
      allowHostPath: { fallback: [], parse: parsePaths('directories such as /srv/data') },
      allowDevice: { fallback: [], parse: parsePaths('devices such as /dev/fuse') },
      allowSysctl: { fallback: [], parse: parseSysctls },
      // The maximum is the limit of the kernel: PID_MAX_LIMIT in include/linux/threads.h.
      maxPids: wholeNumberField(4_096, 1, 4_194_304),
      stopWorkloadsOnExit: switchField(false),
      logLevel: oneOfField('info', ['error', 'warn', 'info', 'debug']),
      logFormat: oneOfField('auto', LOG_FORMATS),
      opsListen: { fallback: undefined, parse: parseListen },
      network: oneOfField('auto', ['auto', 'on', 'off']),
      meshListen: { fallback: undefined, parse: parseMeshListen },
      meshAdvertise: { fallback: undefined, parse: parseAdvertise },
      ingressHttp: { fallback: undefined, parse: parseListen },
      ingressHttps: { fallback: undefined, parse: parseListen },
      otlpEndpoint: otlpEndpointField,
      traceShare: { fallback: 0.01, parse: parseShare },
    },
    layers,
  );
  const problems: Violation[] = [];
  const { portRange } = config;
  for (const field of [
    'listen',
    'opsListen',
    'meshListen',
    'ingressHttp',
    'ingressHttps',
  ] as const) {
    const address = config[field];
    const port = address === undefined || address === 'none' ? 0 : address.port;
    if (port < portRange.from || port > portRange.to) continue;
    problems.push({
      field,
      message: `port ${port} is within the port range of workloads, ${portRange.from} to ${portRange.to}; choose another port or --port-range`,
    });
  }
  problems.push(...findContainerOnlySettings(config), ...findTlsConflicts(config));
  problems.push(...findNetworkConflicts(config));
  if (problems.length > 0) throw new InvalidInputError(problems);
  return { ...config, dataDir: resolve(config.dataDir ?? defaultDataDir(env, config.name)) };
}

/** Returns a problem for each setting that only affects containers when containers are disabled. */
function findContainerOnlySettings(config: Omit<AgentConfig, 'dataDir'>): readonly Violation[] {
  if (config.runtime !== 'process') return [];
  const nothingLeft: readonly Violation[] = config.denyProcesses
    ? [
        {
          field: 'denyProcesses',
          message:
            'leaves nothing that could run, because runtime is process: remove it or choose another runtime',
        },
      ]
    : [];
  const set = {
    criSocket: config.criSocket !== undefined,
    allowPrivileged: config.allowPrivileged,
    allowHostPath: config.allowHostPath.length > 0,
    allowSysctl: config.allowSysctl.length > 0,
    allowDevice: config.allowDevice.length > 0,
  };
  const unused = Object.entries(set).flatMap(([field, isSet]) =>
    isSet
      ? [
          {
            field,
            message:
              'applies to containers only, and runtime is process: remove it or choose another runtime',
          },
        ]
      : [],
  );
  return [...nothingLeft, ...unused];
}

type Parse<Value> = ConfigField<Value>['parse'];

const PLACE_FORMAT = {
  pattern: /^[A-Za-z0-9._-]{0,63}$/,
  expected: 'up to 63 letters, digits, ".", "_" and "-"',
};

const parseCoordinators: Parse<readonly string[]> = (raw) => {
  const addresses = parseList(raw);
  if (addresses === undefined || addresses.length === 0)
    return { problem: 'must be one or more addresses such as https://coordinator.example:8080' };
  for (const address of addresses) {
    const url = URL.canParse(address) ? new URL(address) : undefined;
    if (
      url === undefined ||
      !['http:', 'https:'].includes(url.protocol) ||
      url.pathname !== '/' ||
      url.search !== '' ||
      url.username !== ''
    ) {
      return {
        problem: `"${address}" must be an address such as https://coordinator.example:8080`,
      };
    }
    if (url.protocol === 'http:' && !isLoopbackHost(url.hostname)) {
      return {
        problem: `"${address}" is not on this machine; without TLS only 127.0.0.1, [::1] and localhost are dialled: use https://HOST:PORT`,
      };
    }
  }
  return { value: addresses.map((address) => new URL(address).origin) };
};

const parseListen: Parse<AgentConfig['listen']> = (raw) => {
  const match =
    typeof raw === 'string'
      ? /^(?:(?<host>\[[0-9a-fA-F:]+\]|[^:\s]+):)?(?<port>\d{1,5})$/.exec(raw)
      : null;
  const port = Number(match?.groups?.['port']);
  if (match === null || port > 65_535)
    return { problem: `"${String(raw)}" must be host:port, such as 127.0.0.1:9092` };
  return { value: { host: match.groups?.['host'] ?? '127.0.0.1', port } };
};

const parseMeshListen: Parse<AgentConfig['meshListen']> = (raw) =>
  raw === 'none' ? { value: 'none' } : parseListen(raw);

const parseSocket: Parse<string> = (raw) => {
  const path = typeof raw === 'string' ? raw.replace(/^unix:\/\//, '') : '';
  if (!isAbsolute(path))
    return {
      problem: `"${String(raw)}" must be the absolute path of a socket, such as /run/containerd/containerd.sock`,
    };
  return { value: normalize(path) };
};

/**
 * Creates a parser of a list of absolute paths.
 * @param things - Noun for the error message, with an example.
 */
function parsePaths(things: string): Parse<readonly string[]> {
  return (raw) => {
    const paths = parseList(raw);
    if (paths === undefined || paths.length === 0)
      return { problem: `must be one or more ${things}` };
    const wrong = paths.find((path) => !isAbsolute(path));
    if (wrong !== undefined) return { problem: `"${wrong}" must be an absolute path` };
    return { value: paths.map((path) => resolve(path)) };
  };
}

/** Kernel parameters of the IPC and network namespaces, of which every container has its own. */
const NAMESPACED_SYSCTL =
  /^(kernel\.(msg[a-z_]*|sem|shm[a-z_]*)|fs\.mqueue\.[a-z0-9_]+|net(\.[A-Za-z0-9_-]+)+)$/;

const parseSysctls: Parse<readonly string[]> = (raw) => {
  const names = parseList(raw);
  if (names === undefined || names.length === 0)
    return { problem: 'must be one or more names such as net.core.somaxconn' };
  const wrong = names.find((name) => !NAMESPACED_SYSCTL.test(name));
  if (wrong === undefined) return { value: names };
  return {
    problem: `"${wrong}" must be a kernel parameter that a container has of its own, such as net.core.somaxconn`,
  };
};

const parseLabels: Parse<AgentConfig['label']> = (raw) => {
  const pairs = parsePairs(raw);
  if (pairs === undefined) return { problem: 'must be labels such as disk=ssd' };
  for (const [key, value] of pairs) {
    if (!LABEL_KEY.test(key) || value.length > 253)
      return {
        problem: `"${key}=${value}" is no label: letters, digits, ".", "_", "-", "/" before the "="`,
      };
  }
  return { value: Object.fromEntries(pairs) };
};

const EFFECTS: Readonly<Record<string, Taint_Effect>> = {
  NO_SCHEDULE: Taint_Effect.NO_SCHEDULE,
  PREFER_NO_SCHEDULE: Taint_Effect.PREFER_NO_SCHEDULE,
  NO_EXECUTE: Taint_Effect.NO_EXECUTE,
};

const parseTaints: Parse<readonly AgentTaint[]> = (raw) => {
  const taints: AgentTaint[] = [];
  for (const text of parseList(raw) ?? [String(raw)]) {
    const { key, value, effect } =
      /^(?<key>[^=:\s]{1,253})(?:=(?<value>[^:\s]{0,253}))?:(?<effect>[A-Z_]+)$/.exec(text)
        ?.groups ?? {};
    const taintEffect = EFFECTS[effect ?? ''];
    if (key === undefined || taintEffect === undefined) {
      return {
        problem: `"${text}" must be key=value:EFFECT, with an effect of ${Object.keys(EFFECTS).join(', ')}`,
      };
    }
    taints.push({ key, value: value ?? '', effect: taintEffect });
  }
  return { value: taints };
};

const parsePortRange: Parse<AgentConfig['portRange']> = (raw) => {
  const { first, last } = /^(?<first>\d{1,5})-(?<last>\d{1,5})$/.exec(String(raw))?.groups ?? {};
  const [from, to] = [Number(first), Number(last)];
  if (!(from >= 1 && from <= to && to <= 65_535))
    return { problem: `"${String(raw)}" must be two ports in order, such as 20000-29999` };
  return { value: { from, to } };
};
