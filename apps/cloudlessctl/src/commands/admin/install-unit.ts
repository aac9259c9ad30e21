import { availableParallelism } from 'node:os';
import { dirname, isAbsolute, join } from 'node:path/posix';
import type { Command } from 'commander';
import type { CommandTree, LocalInvocation } from '../../command-tree.js';
import { createUsageFailure } from '../../call/failure.js';
import { withValues } from '../../completion/value-kinds.js';
import { collectValue } from '../../flags/flag-values.js';
import {
  getCommandAfterSeparator,
  getListOption,
  getTextOption,
  requireOperand,
} from '../options.js';
import {
  CREDENTIAL_FLAGS,
  formatUnit,
  readFlag,
  stateDirectoryOf,
  type UnitService,
} from './install-unit-text.js';

const SERVICES: readonly UnitService[] = ['coordinator', 'agent'];

/** Adds `admin install-unit`, which prints a systemd unit. */
export function addInstallUnitCommand(tree: CommandTree, parent: Command): void {
  const command = tree
    .addOfflineCommand(
      parent,
      'install-unit <service> [flags...]',
      'print a hardened systemd unit for a coordinator or an agent of this machine',
      printUnit,
    )
    .option('--program <path>', 'absolute path of the program (default: from the search path)')
    .option('--node <path>', 'absolute path of node (default: the node of this command)')
    .option('--user <name>', 'user of the agent, who runs processes only (default: root)')
    .option(
      '--writable <dir>',
      'directory that processes of an agent without containers may write (repeatable)',
      collectValue,
    );
  for (const argument of command.registeredArguments)
    if (argument.name() === 'service') withValues(argument, SERVICES);
}

async function printUnit(invocation: LocalInvocation): Promise<void> {
  const { session } = invocation;
  const service = toService(requireOperand(invocation, 0, 'service'));
  const args = getCommandAfterSeparator(
    invocation,
    1,
    `cloudlessctl admin install-unit ${service} -- --zone zone-a`,
  );
  const user = getTextOption(invocation, 'user');
  const writablePaths = getListOption(invocation, 'writable');
  checkArguments(service, args);
  checkAgentOptions(service, args, { user, writablePaths });
  const program = getTextOption(invocation, 'program') ?? (await findProgram(invocation, service));
  const node = getTextOption(invocation, 'node') ?? process.execPath;
  checkPath('--program', program, service);
  checkPath('--node', node, service);
  for (const path of writablePaths) checkAbsolute('--writable', path);
  await session.print(
    formatUnit({
      ...{ service, program, nodeFolder: dirname(node), args, user, writablePaths },
      processors: availableParallelism(),
    }),
  );
  const name = `cloudless-${service}`;
  await session.printNotice(
    `next: save it as /etc/systemd/system/${name}.service, then: systemctl daemon-reload && systemctl enable --now ${name}`,
  );
}

function toService(word: string): UnitService {
  const service = SERVICES.find((known) => known === word);
  if (service === undefined)
    throw createUsageFailure(
      `there is no unit for ${JSON.stringify(word)}; expected ${SERVICES.join(' or ')}`,
    );
  return service;
}

/** Flags with a secret as their value. A unit can be read by every user of the machine. */
const SECRET_FLAGS: Readonly<Record<string, string>> = { '--join-token': '--join-token-file PATH' };

/** Rejects arguments of the program that cannot be in a unit. */
function checkArguments(service: UnitService, args: readonly string[]): void {
  for (const [flag, instead] of Object.entries(SECRET_FLAGS))
    if (readFlag(args, flag) !== undefined)
      throw createUsageFailure(
        `every user of the machine can read a unit: write the token to a file that only root can read, and use ${instead} instead of ${flag}`,
      );
  if (readFlag(args, '--data-dir') !== undefined)
    throw createUsageFailure(
      `the unit sets --data-dir itself, to /var/lib/${stateDirectoryOf(service)}; leave it out`,
    );
  if (service === 'coordinator')
    for (const flag of CREDENTIAL_FLAGS) {
      const path = readFlag(args, flag);
      if (path !== undefined) checkAbsolute(flag, path);
    }
  if (args[0] !== undefined && !args[0].startsWith('-'))
    throw createUsageFailure(
      `${JSON.stringify(args[0])} is not a flag; after -- give only the flags of cloudless-${service}${service === 'agent' ? ' run' : ''}`,
    );
  const invalid = args.find((word) => /[\0-\x1f\x7f]/.test(word));
  if (invalid !== undefined)
    throw createUsageFailure(`${JSON.stringify(invalid)}: a unit cannot contain this character`);
}

/** Rejects options that have no meaning for the service. */
function checkAgentOptions(
  service: UnitService,
  args: readonly string[],
  options: { readonly user: string | undefined; readonly writablePaths: readonly string[] },
): void {
  const { user, writablePaths } = options;
  if (service === 'coordinator') {
    if (user !== undefined)
      throw createUsageFailure('--user is for an agent; a coordinator has a user of its own');
    if (writablePaths.length > 0)
      throw createUsageFailure('--writable is for an agent; a coordinator runs no workloads');
    return;
  }
  if (user !== undefined && !/^[a-z_][a-z0-9_-]{0,31}$/.test(user))
    throw createUsageFailure(`--user ${JSON.stringify(user)}: expected the name of a user`);
  const runtime = readFlag(args, '--runtime');
  if (user !== undefined && runtime === 'cri')
    throw createUsageFailure(
      '--runtime cri needs root; leave out --user, or use --runtime process',
    );
  if (user === undefined && writablePaths.length > 0 && runtime !== 'process')
    throw createUsageFailure(
      '--writable is for agents without containers: add --runtime process after --',
    );
}

/** Finds the program in the search path of this command. */
async function findProgram({ session }: LocalInvocation, service: UnitService): Promise<string> {
  const name = `cloudless-${service}`;
  for (const folder of (session.io.env['PATH'] ?? '').split(':').filter(isAbsolute)) {
    const path = join(folder, name);
    const isFile = await session.io.files.list(path).then(
      (names) => names === undefined,
      () => false,
    );
    if (isFile) return path;
  }
  throw createUsageFailure(
    `${name} is not in the search path; install it (npm install --global ${name}-VERSION.tgz), or name it with --program PATH`,
  );
}

/** Homes, which the service of a coordinator cannot see, and which belong to one user. */
const HOMES = /^\/(?:home|root|run\/user)\//;

function checkPath(option: string, path: string, service: UnitService): void {
  checkAbsolute(option, path);
  if (HOMES.test(path) && service === 'coordinator')
    throw createUsageFailure(
      `${path} is in a home, which the service cannot see; install the program for the whole machine, or name another one with ${option} PATH`,
    );
}

function checkAbsolute(option: string, path: string): void {
  if (!isAbsolute(path) || /[\0-\x1f\x7f]/.test(path))
    throw createUsageFailure(`${option} ${JSON.stringify(path)}: expected an absolute path`);
}
