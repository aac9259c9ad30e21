import type { Argument, Option } from 'commander';

/** Candidates that shell completion offers for the value of an option, or for an operand. */
export type ValueKind =
  /** Names and ids, see `find-names.ts`. */
  | 'workload'
  | 'node'
  | 'namespace'
  | 'context'
  | 'region'
  | 'zone'
  | 'event'
  | 'plan'
  | 'user'
  | 'secret'
  /** Ids of the access tokens of the secret that the first operand names. */
  | 'accessToken'
  | 'config'
  | 'service'
  | 'route'
  | 'joinToken'
  /** Credentials of the user of `--user`, or of the caller. */
  | 'credential'
  /** Ports of the workload that the first operand names. */
  | 'port'
  /** Kinds of `get` and `describe`; objects of the kind that the first operand names. */
  | 'kind'
  | 'kindOrWorkload'
  | 'nameOfKind'
  /** Words that select a command, for `help`. */
  | 'command'
  /** Names of local files and directories. */
  | 'file'
  | 'directory'
  /** Nothing: a number, a new name or another text that the user invents. */
  | 'freeText';

/**
 * The kind of each placeholder, such as `node` of `--node <node>` and `drain [nodes...]`. An option
 * or operand with any other placeholder must have {@link withValues}; a test checks all of them.
 */
const KIND_BY_PLACEHOLDER: Readonly<Record<string, ValueKind>> = {
  workload: 'workload',
  workloads: 'workload',
  'workload-or-field': 'workload',
  target: 'workload',
  targets: 'workload',
  node: 'node',
  nodes: 'node',
  namespace: 'namespace',
  context: 'context',
  region: 'region',
  zone: 'zone',
  event: 'event',
  plan: 'plan',
  user: 'user',
  users: 'user',
  secret: 'secret',
  secrets: 'secret',
  'secret-name': 'secret',
  'access-tokens': 'accessToken',
  config: 'config',
  configs: 'config',
  'service-name': 'service',
  'service-names': 'service',
  'route-name': 'route',
  'route-names': 'route',
  token: 'joinToken',
  tokens: 'joinToken',
  credentials: 'credential',
  ports: 'port',
  kind: 'kind',
  'kind-or-workload': 'kindOrWorkload',
  names: 'nameOfKind',
  file: 'file',
  path: 'file',
  dir: 'directory',
  ...toFreeText([
    ...[
      'name',
      'id',
      'text',
      'url',
      'urls',
      'prefix',
      'reference',
      'image',
      'address',
      'selector',
      'capability',
      'directory',
    ],
    ...[
      'number',
      'flags',
      'replicas',
      'number[%]',
      'lines',
      'cores',
      'bytes',
      'duration',
      'time',
      'step',
    ],
    ...['key=value', 'name=value', 'name:address', 'name=soft[:hard]', 'path[:path[:rwm]]'],
    ...['[name=][host:]number', '[name=]port', 'volume', 'check', 'labels', 'taints'],
    ...['count=file', 'workload=replicas', 'revision'],
    ...['pattern', 'cidr', 'user-name', 'server', 'context-name'],
    ...['service-port', 'from', 'hostname', 'name:port', 'prefix=name:port', 'node-path'],
    ...['policy-names', 'reason', 'name[:option]', '[key=]path', 'audience'],
  ]),
};

function toFreeText(placeholders: readonly string[]): Readonly<Record<string, ValueKind>> {
  return Object.fromEntries(placeholders.map((placeholder) => [placeholder, 'freeText']));
}

/**
 * Sets the values that shell completion offers. The action checks the value itself, with a message
 * that names the option.
 */
export function withValues<Target extends Option | Argument>(
  target: Target,
  values: readonly string[],
): Target {
  target.argChoices = [...values];
  return target;
}

/**
 * Returns what completion offers for the value of an option; undefined when neither its placeholder
 * is known nor it has values, and for an option without a value.
 */
export function getOptionValues(option: Option): readonly string[] | ValueKind | undefined {
  const [, placeholder = ''] = /[<[](.+)[>\]]$/.exec(option.flags) ?? [];
  return option.argChoices ?? KIND_BY_PLACEHOLDER[placeholder];
}

/** Returns what completion offers for an operand, as {@link getOptionValues} does for options. */
export function getOperandValues(argument: Argument): readonly string[] | ValueKind | undefined {
  const values = argument.argChoices ?? KIND_BY_PLACEHOLDER[argument.name()];
  // The command of `exec` and `create` follows --; the words of `help` select a command.
  return values ?? (argument.name() === 'command' ? 'command' : undefined);
}
