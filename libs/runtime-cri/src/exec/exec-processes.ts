import { EXEC_GRACE_MS } from '@cloudless/runtime';
import { sleep, type Clock } from '@cloudless/base';
import {
  readCommandLine,
  isFirstOfNamespace,
  readPidNamespace,
  readProcess,
  readProcesses,
  signalProcess,
  type HostProcess,
} from '../system/host-processes.js';

/**
 * Finds the commands that run in a container beside its main process: processes in its pid
 * namespace whose parent is outside.
 * @param mainPid - Id of the container's main process.
 */
export function findCommands(mainPid: number): readonly HostProcess[] {
  const namespace = readPidNamespace(mainPid);
  if (namespace === undefined) return [];
  return readProcesses().filter(
    ({ pid, parentPid }) =>
      pid !== mainPid &&
      readPidNamespace(pid) === namespace &&
      readPidNamespace(parentPid) !== namespace &&
      !isFirstOfNamespace(pid), // the init process is not a command
  );
}

/**
 * Finds the command that was just started.
 * @param before - Identities of the commands that ran before.
 * @returns Undefined while the command cannot be identified.
 */
export function findNewCommand(
  mainPid: number,
  before: ReadonlySet<string>,
  commandLine: readonly string[],
): HostProcess | undefined {
  const candidates = findCommands(mainPid).filter((each) => !before.has(toIdentity(each)));
  if (candidates.length <= 1) return candidates[0];
  const wanted = commandLine.join('\0');
  // another program starts commands there, too
  return candidates.find(({ pid }) => readCommandLine(pid).join('\0') === wanted);
}

/** Returns a text that identifies a process uniquely. */
export function toIdentity({ pid, startToken }: HostProcess): string {
  return `${pid} ${startToken}`;
}

/**
 * Ends a command and all its descendants: SIGTERM and SIGHUP, then SIGKILL after {@link
 * EXEC_GRACE_MS}. Resolves when no process is left.
 */
export async function endCommand(command: HostProcess, clock: Clock): Promise<void> {
  const family = new Map<string, HostProcess>();
  const updateFamily = (): void => {
    for (const each of findFamily(command, family)) family.set(toIdentity(each), each);
  };
  updateFamily();
  for (const signal of ['SIGTERM', 'SIGHUP'] as const)
    for (const each of family.values()) signalProcess(each, signal);
  const killAt = clock.now() + EXEC_GRACE_MS;
  while (clock.now() < killAt) {
    if (![...family.values()].some(isAlive)) return;
    await sleep(clock, POLL_MS);
    updateFamily();
  }
  for (const each of family.values()) signalProcess(each, 'SIGKILL');
}

const POLL_MS = 50;

/**
 * Returns the command, its session, and the descendants of all of them, including processes whose
 * parent has ended meanwhile.
 */
function findFamily(
  command: HostProcess,
  known: ReadonlyMap<string, HostProcess>,
): readonly HostProcess[] {
  const all = readProcesses();
  const members = new Map<number, HostProcess>();
  for (const each of all) {
    if (
      each.pid === command.pid
        ? each.startToken === command.startToken
        : each.sessionId === command.pid
    )
      members.set(each.pid, each);
    if (known.has(toIdentity(each))) members.set(each.pid, each);
  }
  for (let grown = true; grown;) {
    grown = false;
    for (const each of all) {
      if (members.has(each.pid) || !members.has(each.parentPid)) continue;
      members.set(each.pid, each);
      grown = true;
    }
  }
  return [...members.values()];
}

function isAlive({ pid, startToken }: HostProcess): boolean {
  return readProcess(pid)?.startToken === startToken;
}
