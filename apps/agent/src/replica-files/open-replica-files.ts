import { createHash } from 'node:crypto';
import { lstatSync, mkdirSync, readFileSync, statfsSync } from 'node:fs';
import { join } from 'node:path';
import { CloudlessError, errorCodeOf, type Log } from '@cloudless/base';
import { mountMemory, unmountMemory } from '@cloudless/runtime-cri';
import { FileReplicaFiles, type ReplicaMounts } from './file-replica-files.js';

/** Folder in the data directory with the secrets and configs of replicas. */
export const REPLICA_FILES_FOLDER = 'replica-files';
/**
 * Type of a tmpfs.
 * @see Linux kernel, include/uapi/linux/magic.h, `TMPFS_MAGIC`
 */
const TMPFS = 0x0102_1994;
/**
 * Bit of the capability SYS_ADMIN.
 * @see Linux kernel, include/uapi/linux/capability.h
 */
const SYS_ADMIN = 1n << 21n;

/** The settings and abilities of the machine that decide where the files are. */
export interface ReplicaFilesPlace {
  /** True when this process may mount a tmpfs. */
  readonly canMount: boolean;
  /** Directories that are in memory on many machines, the preferred one first. */
  readonly memoryDirectories: readonly string[];
}

/** Reads what decides where the files are on this machine. */
export function readReplicaFilesPlace(env: NodeJS.ProcessEnv): ReplicaFilesPlace {
  const { XDG_RUNTIME_DIR: runtimeDirectory = '' } = env;
  return {
    canMount: hasSysAdmin(),
    memoryDirectories: [...(runtimeDirectory === '' ? [] : [runtimeDirectory]), '/dev/shm'],
  };
}

/**
 * Opens the secrets and configs of replicas: each replica has a tmpfs of its own below the data
 * directory; or, when this process may not mount, a directory of this user in a tmpfs of the
 * machine; or else a directory on disk.
 */
export function openReplicaFiles(
  dataDir: string,
  { canMount, memoryDirectories }: ReplicaFilesPlace = readReplicaFilesPlace({}),
  log: Log,
): FileReplicaFiles {
  const ownLog = log.child({ component: 'files' });
  const folder = join(dataDir, REPLICA_FILES_FOLDER);
  if (canMount) return new FileReplicaFiles(folder, dataDir, createMounts(), ownLog);
  const memory = memoryDirectories.find(isInMemory);
  if (memory !== undefined) {
    const path = join(memory, toPrivateName(dataDir));
    return new FileReplicaFiles(path, dataDir, undefined, ownLog, async () => openPrivately(path));
  }
  ownLog.warn(
    'secrets of replicas are stored on disk, because this machine has no tmpfs for them',
    {
      directory: folder,
      remedy: 'run the agent as root, or set XDG_RUNTIME_DIR to a directory on a tmpfs',
    },
  );
  return new FileReplicaFiles(folder, dataDir, undefined, ownLog);
}

function createMounts(): ReplicaMounts {
  return {
    mount: (directory, sizeBytes) =>
      mountMemory('spec.secrets', directory, {
        ...{ sizeBytes, mode: 0o700, noExec: true, noSwap: true },
      }),
    unmount: unmountMemory,
  };
}

/** Returns the name of the directory of an agent, beside those of other users and agents. */
function toPrivateName(dataDir: string): string {
  const id = createHash('sha256').update(dataDir).digest('hex').slice(0, 16);
  return `cloudless-agent-${process.getuid?.() ?? 0}-${id}`;
}

/**
 * Creates a directory where other users may create files, too.
 * @throws kind `precondition` when another user has taken the name.
 */
function openPrivately(path: string): void {
  try {
    mkdirSync(path, { mode: 0o700 });
  } catch (reason) {
    if (errorCodeOf(reason) !== 'EEXIST') throw reason;
  }
  const stats = lstatSync(path);
  if (stats.isDirectory() && stats.uid === process.getuid?.() && (stats.mode & 0o077) === 0) return;
  throw new CloudlessError(
    'precondition',
    `${path} must be a directory that only the user of the agent can access, for the secrets of replicas; remove the file`,
  );
}

function isInMemory(directory: string): boolean {
  try {
    return process.platform === 'linux' && statfsSync(directory).type === TMPFS;
  } catch {
    return false;
  }
}

/** @see proc_pid_status(5), `CapEff` */
function hasSysAdmin(): boolean {
  try {
    const [, bits = '0'] =
      /^CapEff:\s*([0-9a-f]+)$/m.exec(readFileSync('/proc/self/status', 'utf8')) ?? [];
    return process.getuid?.() === 0 && (BigInt(`0x${bits}`) & SYS_ADMIN) !== 0n;
  } catch {
    return false;
  }
}
