import {
  accessSync,
  closeSync,
  constants,
  existsSync,
  openSync,
  readSync,
  statSync,
} from 'node:fs';
import { isIP } from 'node:net';
import path from 'node:path';
import {
  definedFields,
  CloudlessError,
  errorCodeOf,
  InvalidInputError,
  type Violation,
} from '@cloudless/base';
import { CommandNotStartedError, NOT_STARTED_EXIT_CODES } from '@cloudless/runtime';
import type { ContainerEndpoint, ContainerRequest } from '@cloudless/runtime';
import { CONTAINER_MARK } from '../../system/marked-processes.js';
import type { DnsSettings } from '../resolver/resolver-text.js';
import type { LaunchContext } from './launch-context.js';
import { isOrdinaryVariable } from './launch-script.js';

/**
 * Validates a request before anything is created for it.
 * @throws kind `invalid` or `unimplemented`; the message names the field.
 */
export function checkRequest(request: ContainerRequest): void {
  refuseContainerFeatures(request);
  checkContainerId(request.containerId);
  const violations: Violation[] = [];
  const { command, args, env, secretEnv = {}, workingDir, ports } = request;
  checkCommand([...command], violations);
  if (args.some(hasNul))
    violations.push({ field: 'args', message: 'must not contain NUL characters' });
  checkVariables(env, violations);
  checkVariables(secretEnv, violations);
  for (const name of Object.keys(secretEnv))
    if (!isOrdinaryVariable(name))
      violations.push({
        field: `env.${name}`,
        message:
          'cannot have the value of a secret, because shells and the dynamic linker use the variable; choose another name, or a file',
      });
  if (workingDir !== undefined && !isDirectory(workingDir))
    violations.push({ field: 'workingDir', message: `no directory ${workingDir}` });
  checkDnsSettings(request.network ?? {}, violations);
  const names = ports.map(({ name }) => toVariableName(name));
  if (new Set(names).size < names.length)
    violations.push({ field: 'ports', message: 'names must be unique' });
  if (violations.length > 0) throw new InvalidInputError(violations);
}

/** Network settings that a process can have. */
const DNS_FIELDS = ['dnsServers', 'dnsSearches', 'dnsOptions'];

/**
 * Refuses fields that only container runtimes support, so that no requested setting is ignored.
 * @throws kind `unimplemented`; the message names the field.
 */
function refuseContainerFeatures({
  image,
  limits,
  ports,
  volumes = [],
  security,
  network,
}: ContainerRequest): void {
  const unsupported = [
    ['image', image !== undefined, 'runs commands, not images'],
    ['limits.cpuMillis', limits.cpuMillis !== undefined, 'enforces no limits'],
    ['limits.memoryBytes', limits.memoryBytes !== undefined, 'enforces no limits'],
    ['limits.pids', limits.pids !== undefined, 'enforces no limits'],
    [
      'ports.hostPort',
      ports.some(({ hostPort }) => hostPort !== undefined),
      'assigns the ports itself',
    ],
    ['volumes', volumes.length > 0, 'mounts no volumes'],
    ['security', security !== undefined, "gives every process the agent's own rights"],
    ...Object.keys(network ?? {})
      .filter((field) => !DNS_FIELDS.includes(field))
      .map((field) => [`network.${field}`, true, 'has no network of its own'] as const),
  ] as const;
  for (const [field, isRequested, reason] of unsupported) {
    if (isRequested)
      throw new CloudlessError('unimplemented', `${field}: the process runtime ${reason}`);
  }
}

/**
 * Checks a container id. The id becomes the name of a directory, so only hex digits are accepted.
 * @throws kind `invalid` unless the value is a text of 64 lower-case hex digits.
 */
export function checkContainerId(containerId: unknown): void {
  if (typeof containerId !== 'string' || !/^[0-9a-f]{64}$/.test(containerId)) {
    throw new CloudlessError('invalid', 'containerId: must be 64 hex digits');
  }
}

/**
 * Builds the environment of a container: PATH, HOME, the variables of the request, `PORT` (the first
 * port), `CLOUDLESS_PORT_<NAME>` for each port, and the mark. Later ones replace earlier ones of the
 * same name. No variable of the agent is passed on.
 * @param defaults - PATH and HOME of a container whose request does not set them.
 */
export function buildEnvironment(
  request: ContainerRequest,
  endpoints: readonly ContainerEndpoint[],
  defaults: { readonly path: string; readonly home: string },
): Readonly<Record<string, string>> {
  const ports = endpoints.map(
    ({ portName, port }) => [`CLOUDLESS_PORT_${toVariableName(portName)}`, String(port)] as const,
  );
  const [first] = endpoints;
  return {
    PATH: defaults.path,
    HOME: defaults.home,
    ...request.env,
    ...request.secretEnv,
    ...(first === undefined ? {} : { PORT: String(first.port) }),
    ...Object.fromEntries(ports),
    [CONTAINER_MARK]: request.containerId,
  };
}

/**
 * Adds the variables of a command to the environment of its container. A variable of the command
 * replaces a variable of the same name, except the mark of the container.
 * @throws kind `invalid` for a malformed variable.
 */
export function withVariables(
  env: Readonly<Record<string, string>>,
  variables: Readonly<Record<string, string>>,
): Readonly<Record<string, string>> {
  const violations: Violation[] = [];
  checkVariables(variables, violations);
  if (violations.length > 0) throw new InvalidInputError(violations);
  return {
    ...env,
    ...variables,
    ...definedFields({ [CONTAINER_MARK]: env[CONTAINER_MARK] }),
  };
}

/**
 * Finds the executable file of a command as `execvp` does, but in the PATH of the container.
 * @throws {@link CommandNotStartedError} when there is no such file or its interpreter is missing;
 *   kind `invalid` for an empty or malformed command.
 */
export function resolveExecutable(
  command: readonly string[],
  { env, workingDir }: LaunchContext,
): string {
  const violations: Violation[] = [];
  checkCommand(command, violations);
  const [name = ''] = command;
  if (violations.length > 0) throw new InvalidInputError(violations);
  const folders = name.includes('/') ? [''] : (env.PATH ?? '').split(':');
  const files = folders.map((folder) => path.resolve(workingDir, folder, name));
  const file = files.find(isExecutable);
  const { notFound, notExecutable } = NOT_STARTED_EXIT_CODES;
  if (file !== undefined) {
    const interpreter = findInterpreter(file);
    if (interpreter === undefined || isExecutable(interpreter)) return file;
    const message = `command: ${name} cannot be started: its interpreter ${interpreter} is missing or not executable`;
    throw new CommandNotStartedError(notFound, message);
  }
  // Show the name as the caller gave it: callers must not see where the agent keeps its data.
  if (files.some((each) => existsSync(each)))
    throw new CommandNotStartedError(notExecutable, `command: ${name} is not executable`);
  const problem = name.includes('/')
    ? `no executable file ${name}`
    : `no executable ${name} in PATH ${env.PATH ?? ''}`;
  throw new CommandNotStartedError(notFound, `command: ${problem}`);
}

/**
 * Converts the error of a failed spawn: kind `exhausted` when the machine has no more processes,
 * memory or descriptors, otherwise {@link CommandNotStartedError}.
 * @param name - The program as the caller named it.
 */
export function toSpawnError(cause: unknown, name: string): CloudlessError {
  const code = errorCodeOf(cause) ?? '';
  const message = `command: ${name} cannot be started`;
  if (['EAGAIN', 'ENOMEM', 'EMFILE', 'ENFILE'].includes(code))
    return new CloudlessError('exhausted', message, { cause });
  // for a script, the missing file may be its interpreter
  const { notFound, notExecutable } = NOT_STARTED_EXIT_CODES;
  return new CommandNotStartedError(code === 'ENOENT' ? notFound : notExecutable, message, {
    cause,
  });
}

function checkCommand(command: readonly string[], violations: Violation[]): void {
  if (command.length === 0 || command[0] === '')
    violations.push({ field: 'command', message: 'must not be empty' });
  if (command.some(hasNul))
    violations.push({ field: 'command', message: 'must not contain NUL characters' });
}

function checkVariables(env: Readonly<Record<string, string>>, violations: Violation[]): void {
  for (const [name, value] of Object.entries(env)) {
    if (name === '' || name.includes('=') || hasNul(name) || hasNul(value))
      violations.push({ field: `env.${name}`, message: 'is not a valid variable' });
  }
}

/** Each value is one word of the resolv.conf: a line feed in a domain would begin another line. */
function checkDnsSettings(
  { dnsServers = [], dnsSearches = [], dnsOptions = [] }: DnsSettings,
  violations: Violation[],
): void {
  const refuse = (field: string, value: string, message: string): number =>
    violations.push({ field: `network.${field}`, message: `${JSON.stringify(value)} ${message}` });
  for (const address of dnsServers)
    if (isIP(address) === 0) refuse('dnsServers', address, 'is not an IP address');
  for (const domain of dnsSearches)
    if (!/^\S+$/.test(domain)) refuse('dnsSearches', domain, 'is not a domain');
  for (const option of dnsOptions)
    if (!/^\S+$/.test(option)) refuse('dnsOptions', option, 'is not an option of a resolver');
}

function hasNul(text: string): boolean {
  return text.includes('\0');
}

/** Converts a port name such as `dns-in` to `DNS_IN`. */
function toVariableName(portName: string): string {
  return portName.toUpperCase().replaceAll(/[^A-Z0-9]/g, '_');
}

/**
 * Returns the absolute path of a script's interpreter; undefined for other files and for unreadable
 * scripts.
 */
function findInterpreter(file: string): string | undefined {
  const head = Buffer.alloc(256);
  try {
    const fd = openSync(file, constants.O_RDONLY);
    try {
      readSync(fd, head);
    } finally {
      closeSync(fd);
    }
  } catch {
    return undefined;
  }
  const [, interpreter] = /^#![ \t]*(\/[^ \t\n\0]+)[ \t\n\0]/.exec(head.toString('latin1')) ?? [];
  return interpreter;
}

function isDirectory(folder: string): boolean {
  return (
    path.isAbsolute(folder) && (statSync(folder, { throwIfNoEntry: false })?.isDirectory() ?? false)
  );
}

function isExecutable(file: string): boolean {
  try {
    accessSync(file, constants.X_OK);
    return statSync(file).isFile();
  } catch {
    return false;
  }
}
