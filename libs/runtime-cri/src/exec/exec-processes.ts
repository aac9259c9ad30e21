import { EXEC_GRACE_MS } from '@cloudless/runtime';
import { sleep, type Clock } from '@cloudless/base';
import {
  isFirstOfNamespace,
  isRunning,
  readCommandLine,
  readPidNamespace,
  readProcesses,
  signalProcess,
  type HostProcess,
} from '../system/host-processes.js';

/**
 * Finds the commands that run in a container beside its main process: processes in the pid
 * namespace of the container whose parent is outside of the namespace.
 * @param mainPid - Process id of the container's main process.
 * @returns Empty when the main process has ended.
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
 * Finds the command that was just started. When several new commands run, because another program
 * also starts commands in the container, the command line decides.
 * @param before - Identities, from {@link toIdentity}, of the commands that ran before the start.
 * @returns Undefined while the command is not found.
 */
export function findNewCommand(
  mainPid: number,
  before: ReadonlySet<string>,
  commandLine: readonly string[],
): HostProcess | undefined {
  const candidates = findCommands(mainPid).filter((each) => !before.has(toIdentity(each)));
  if (candidates.length <= 1) return candidates[0];
  const joined = commandLine.join('\0');
  return candidates.find(({ pid }) => readCommandLine(pid).join('\0') === joined);
}

/** Returns a text that identifies a process uniquely until the machine is restarted. */
export function toIdentity({ pid, startToken }: HostProcess): string {
  return `${pid} ${startToken}`;
}

/**
 * Ends a command, the processes of its session and all their descendants: SIGTERM and SIGHUP, then
 * SIGKILL after {@link EXEC_GRACE_MS}. Resolves when all processes have ended, or when SIGKILL was
 * sent.
 */
export async function endCommand(command: HostProcess, clock: Clock): Promise<void> {
  const family = new Map<string, HostProcess>();
  const updateFamily = (): void => {
    for (const each of findFamily(command, family)) family.set(toIdentity(each), each);
  };
  updateFamily();
  for (const signal of ['SIGTERM', 'SIGHUP'] as const)
    for (const each of family.values()) signalProcess(each, signal);
  const killAtMs = clock.now() + EXEC_GRACE_MS;
  while (clock.now() < killAtMs) {
    if (![...family.values()].some(isRunning)) return;
    await sleep(clock, POLL_MS);
    updateFamily();
  }
  for (const each of family.values()) signalProcess(each, 'SIGKILL');
}

/** Interval in which the end of the processes is checked and new descendants are found. */
const POLL_MS = 50;

/**
 * Returns the command, the processes of its session, and the descendants of all these processes.
 * @param known - Members that were found before, by identity: a descendant remains a member when
 *   its parent has ended.
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
