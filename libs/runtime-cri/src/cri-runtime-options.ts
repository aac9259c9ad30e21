import path from 'node:path';
import { CloudlessError, type Clock, type Log } from '@cloudless/base';
import type { CriClient } from './client/cri-client.js';
import type { PortRange } from './containers/host-ports.js';
import type { Owner } from './containers/labels.js';
import { ImageCollector } from './images/image-collector.js';
import { ImageLedger } from './images/image-ledger.js';
import type { CollectionLimits, DiskUse } from './images/select-images.js';
import type { Permissions } from './probe/capabilities.js';
import { VolumeStore } from './volumes/volume-store.js';

/** Options of `openCriRuntime`. */
export interface CriRuntimeOptions extends Permissions {
  /**
   * Absolute path of the Unix socket of the container runtime, such as
   * /run/containerd/containerd.sock.
   */
  readonly socketPath: string;
  /**
   * Owner of the containers, set as labels on every container. Containers with other labels are
   * never touched.
   */
  readonly owner: Owner;
  /**
   * Absolute path of the log directory, created when it does not exist. No other program may keep
   * files there.
   */
  readonly logDirectory: string;
  readonly clock: Clock;
  readonly log: Log;
  /** Number of log files that are kept per container, at least 2. Default 4. */
  readonly logFiles?: number;
  /** Size in bytes above which a log file is rotated, at least 1. Default 10 MiB. */
  readonly logFileBytes?: number;
  /** Interval in milliseconds in which the sizes of logs are checked. Default 1 s. */
  readonly logCheckMs?: number;
  /**
   * Absolute path of the directory for volumes, created when it does not exist. No other program
   * may keep files there. Default: `volumes` beside the log directory.
   */
  readonly volumeDirectory?: string;
  /**
   * Absolute paths that no container may mount, neither directly nor through a parent or child
   * directory. Default: only the paths of this runtime.
   */
  readonly guardedPaths?: readonly string[];
  /**
   * Limit on the processes and threads of a container whose request sets no limit, at least 1.
   * Default 4096.
   */
  readonly maxPids?: number;
  /**
   * Range of host ports that the process runtime assigns to processes. A container that requests a
   * host port in this range is refused. Default none.
   */
  readonly processPorts?: PortRange;
  /**
   * Age in milliseconds from which the sweep removes sandboxes without a container, logs and empty
   * directories without a container, and networks of exited containers. Default 60 s.
   */
  readonly orphanAgeMs?: number;
  /**
   * Absolute path of the directory that records which images were pulled by which cluster, created
   * when it does not exist. Use the same path for all agents of a machine. Default
   * /var/lib/cloudless.
   */
  readonly imageDirectory?: string;
  /** Limits for the removal of unused images that this cluster pulled. */
  readonly imageCollection?: ImageCollection;
  /**
   * Called with the capabilities of the open runtime, and again after each change. Must not throw.
   */
  readonly onCapabilities?: (capabilities: readonly string[]) => void;
}

/**
 * Limits for the removal of unused images. Default: removal begins above 85 % disk usage and ends
 * at 80 %; images that were used in the last 2 min stay; the disk is checked every 60 s.
 */
export interface ImageCollection extends Partial<CollectionLimits> {
  /** Interval in milliseconds in which the disk usage is checked. Default 60 s. */
  readonly checkMs?: number;
  /**
   * Reads the usage of the file system with the images. Default: the container runtime names the
   * file system (`ImageFsInfo`), and the kernel reports its usage (`statfs`).
   */
  readonly readDisk?: () => Promise<DiskUse>;
}

/** Default limits, the same as in the kubelet. */
const IMAGE_LIMITS: CollectionLimits = { highPercent: 85, lowPercent: 80, minIdleMs: 2 * 60_000 };
const IMAGE_DIRECTORY = '/var/lib/cloudless';

/**
 * Validates the options.
 * @throws kind `invalid`, naming the option.
 */
export function checkOptions(options: CriRuntimeOptions): void {
  // The defaults in this pattern only make absent options pass; the real defaults are elsewhere.
  const {
    socketPath,
    logDirectory,
    volumeDirectory = '/',
    imageDirectory = '/',
    owner,
    logFiles = 2,
    logFileBytes = 1,
    maxPids = 1,
  } = options;
  const createError = (message: string): CloudlessError => new CloudlessError('invalid', message);
  if (!path.isAbsolute(socketPath)) throw createError('socketPath: must be an absolute path');
  if (!path.isAbsolute(logDirectory)) throw createError('logDirectory: must be an absolute path');
  if (!path.isAbsolute(volumeDirectory))
    throw createError('volumeDirectory: must be an absolute path');
  if (!path.isAbsolute(imageDirectory))
    throw createError('imageDirectory: must be an absolute path');
  if (!(maxPids >= 1)) throw createError('maxPids: must be 1 or more');
  if (owner.cluster === '' || owner.node === '')
    throw createError('owner: cluster and node must not be empty');
  if (!(logFiles >= 2 && logFileBytes >= 1))
    throw createError('logFiles: must be 2 or more, of 1 byte or more');
}

/** Creates the collector of unused images, with the limits of `imageCollection`. */
export function createImageCollector(
  client: CriClient,
  options: CriRuntimeOptions,
): ImageCollector {
  const { socketPath, owner, imageDirectory: directory = IMAGE_DIRECTORY, clock, log } = options;
  const { checkMs: _, readDisk, ...limits } = options.imageCollection ?? {};
  const ledger = new ImageLedger({ directory, socketPath, clock, log });
  return new ImageCollector({
    client,
    ledger,
    cluster: owner.cluster,
    limits: { ...IMAGE_LIMITS, ...limits },
    readDisk,
    clock,
    log,
  });
}

/**
 * Creates the store for the directories of volumes. Containers cannot mount the sockets of the
 * container runtime, the directories of this library and `guardedPaths`.
 */
export function createVolumeStore(options: CriRuntimeOptions): VolumeStore {
  const {
    socketPath,
    logDirectory,
    allowedHostPaths: allowed = [],
    guardedPaths = [],
    clock,
  } = options;
  const directory = options.volumeDirectory ?? path.join(path.dirname(logDirectory), 'volumes');
  const guarded = [
    socketPath,
    `${socketPath}.ttrpc`, // the second socket of containerd, with the same API
    logDirectory,
    directory,
    options.imageDirectory ?? IMAGE_DIRECTORY,
    ...guardedPaths,
  ];
  return new VolumeStore(directory, { allowed, guarded }, () => clock.wallTime());
}
