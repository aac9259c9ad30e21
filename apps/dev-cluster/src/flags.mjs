// The flags of dev-cluster. Plain JavaScript without packages: `npm start -- --help` uses this file
// before anything is installed. The types are in flags.d.mts.
import { parseArgs } from 'node:util';

const MAX_PORT = 65_535;
/** Each agent has a thousand ports for workloads. */
const MAX_AGENTS = 40;

/** @type {readonly import('./flags.d.mts').FlagDefinition[]} */
export const FLAGS = [
  { name: 'port', value: 'number', help: 'port of the API', fallback: 8080, max: MAX_PORT },
  {
    name: 'ops-port',
    value: 'number',
    help: 'port of /health, /ready and /metrics',
    fallback: 8081,
    max: MAX_PORT,
  },
  {
    name: 'agent-port',
    value: 'number',
    help: "port of the first agent's API; the others follow",
    fallback: 9092,
    max: MAX_PORT,
  },
  {
    name: 'workload-port',
    value: 'number',
    help: 'first port for workloads',
    fallback: 20_000,
    max: MAX_PORT,
  },
  {
    name: 'agents',
    value: 'number',
    help: 'number of agents, in zones a, b, c',
    fallback: 3,
    max: MAX_AGENTS,
  },
  {
    name: 'runtime',
    value: 'name',
    help: 'runtime beside processes: auto, process or cri',
    fallback: 'auto',
    choices: ['auto', 'process', 'cri'],
  },
  {
    name: 'cri-socket',
    value: 'path',
    help: 'socket of the container runtime; default: the first that answers',
  },
  {
    name: 'data-dir',
    value: 'path',
    help: 'data directory; default: a temporary one, removed at the end',
  },
  { name: 'example', value: 'file', help: 'manifest to apply after the start' },
  { name: 'secure', help: 'with TLS, identities and roles; default: plaintext' },
  { name: 'demo', help: 'show the life of the example step by step, then stop' },
  { name: 'verbose', help: 'print the logs of all programs' },
  { name: 'version', short: 'V', help: 'print the version' },
  { name: 'help', short: 'h', help: 'print this help' },
];

/**
 * Parses the arguments after the name of the program.
 * @param {readonly string[]} args
 * @returns {import('./flags.d.mts').ParsedFlags}
 */
export function parseFlags(args) {
  let values;
  try {
    values = parseArgs({
      args: [...args],
      allowPositionals: false,
      options: Object.fromEntries(
        FLAGS.map(({ name, short, value }) => [
          name,
          { type: value === undefined ? 'boolean' : 'string', ...(short ? { short } : {}) },
        ]),
      ),
    }).values;
  } catch (reason) {
    return { kind: 'invalid', message: describeProblem(reason) };
  }
  if (values.help === true) return { kind: 'help' };
  if (values.version === true) return { kind: 'version' };
  /** @type {Record<string, unknown>} */
  const flags = {};
  for (const definition of FLAGS) {
    const raw = values[definition.name];
    if (raw === undefined && definition.fallback === undefined) continue;
    const parsed = raw === undefined ? { value: definition.fallback } : parseValue(definition, raw);
    if ('problem' in parsed) {
      return { kind: 'invalid', message: `--${definition.name}: "${raw}" ${parsed.problem}` };
    }
    flags[toCamelCase(definition.name)] = parsed.value;
  }
  return { kind: 'run', flags: /** @type {any} */ (flags) };
}

/** Returns the text of `--help`, with lines of at most 100 characters. */
export function formatHelp() {
  const rows = FLAGS.map(({ name, short, value, help, fallback }) => [
    `  ${short ? `-${short}, ` : ''}--${name}${value === undefined ? '' : ` <${value}>`}`,
    fallback === undefined ? help : `${help} (default ${fallback})`,
  ]);
  const width = Math.max(...rows.map(([flag]) => flag.length)) + 2;
  return [
    'Usage: npm start -- [flags]',
    '',
    'Runs one coordinator and several agents on this machine, on loopback only, until Ctrl-C.',
    '',
    'Flags:',
    ...rows.map(([flag, help]) => `${flag.padEnd(width)}${help}`),
    '',
  ].join('\n');
}

/**
 * @param {import('./flags.d.mts').FlagDefinition} definition
 * @param {string | boolean} raw
 */
function parseValue({ fallback, max, choices }, raw) {
  if (raw === '') return { problem: 'must not be empty' };
  if (choices !== undefined && !choices.includes(String(raw)))
    return { problem: `must be one of ${choices.join(', ')}` };
  if (typeof fallback !== 'number' || max === undefined) return { value: raw };
  const number = Number(raw);
  return /^\d+$/.test(String(raw)) && number <= max
    ? { value: number }
    : { problem: `must be a whole number from 0 to ${max}` };
}

/** Returns the message for an error of `parseArgs`. */
function describeProblem(reason) {
  const [, name] = /'(?:-\w, )?(-[^' ]*)/.exec(reason.message) ?? [];
  if (reason.code === 'ERR_PARSE_ARGS_UNKNOWN_OPTION')
    return `unknown flag ${name}; see --help for the flags`;
  if (reason.code === 'ERR_PARSE_ARGS_INVALID_OPTION_VALUE')
    return reason.message.includes('does not take')
      ? `${name}: takes no value`
      : `${name}: needs a value; write ${name}=VALUE for a value that begins with "-"`;
  return `${/'(.*?)'/.exec(reason.message)?.[1] ?? reason.message}: is no flag; see --help for the flags`;
}

function toCamelCase(name) {
  return name.replaceAll(/-(.)/g, (_, letter) => letter.toUpperCase());
}
