import path from 'node:path';
import { CloudlessError, type Clock, type Log } from '@cloudless/base';
import type { CriClient } from './client/cri-client.js';
import type { PortRange } from './containers/host-ports.js';
import type { Owner } from './containers/labels.js';
import { ImageCollector } from './images/image-collector.js';
import { ImageLedger } from './images/image-ledger.js';
import type { CollectionLimits, DiskUse } from './images/plan-collection.js';
import type { Permissions } from './probe/capabilities.js';
import { VolumeStore } from './volumes/volume-store.js';

/** Needs of `openCriRuntime`. */
export interface CriRuntimeOptions extends Permissions {
  /** Absolute path of the runtime's Unix socket, as /run/containerd/containerd.sock. */
  readonly socketPath: string;
  /**
   * Whose containers these are; on every one of them as labels. What carries others is never
   * touched.
   */
  readonly owner: Owner;
  /**
   * Absolute path of the folder for logs; made when missing. Nobody else may keep anything there.
   */
  readonly logDirectory: string;
  readonly clock: Clock;
  readonly log: Log;
  /**
   * Log files kept per container, 2 or more, and the size in bytes at which a new one begins.
   * Default 4 of 10 MiB.
   */
  readonly logFiles?: number;
  readonly logFileBytes?: number;
  /** How often sizes of logs are looked at. Default 1 s. */
  readonly logCheckMs?: number;
  /**
   * Absolute path of the folder for volumes; made when missing. Nobody else may keep anything
   * there. Default `volumes` beside that for logs.
   */
  readonly volumeDirectory?: string;
  /**
   * Absolute paths that no container may mount, neither by a directory above nor below. Default
   * only what is this runtime's own.
   */
  readonly guardedPaths?: readonly string[];
  /** Processes and threads of a container whose request sets no limit. Default 4096. */
  readonly maxPids?: number;
  /**
   * Ports of the machine that are given to processes: none of them is led into a container. Default
   * none.
   */
  readonly processPorts?: PortRange;
  /** Sandboxes without a container are removed once they are this old. Default 60 s. */
  readonly orphanAgeMs?: number;
  /**
   * Absolute path of the folder that says which images were pulled, and by which cluster; made when
   * missing. The same for all agents of this machine. Default /var/lib/cloudless.
   */
  readonly imageDirectory?: string;
  /** When images that this cluster pulled, and that nobody uses, are removed. */
  readonly imageCollection?: ImageCollection;
}

/**
 * When images are removed. Defaults: above 85 % until it is at 80 %, never what was used in the
 * last 2 min; looked at every 60 s.
 */
export interface ImageCollection extends Partial<CollectionLimits> {
  readonly checkMs?: number;
  /** How full the file system of the images is; default: as the runtime and the kernel say. */
  readonly readDisk?: () => Promise<DiskUse>;
}

const IMAGE_LIMITS: CollectionLimits = { highPercent: 85, lowPercent: 80, minIdleMs: 2 * 60_000 };
const IMAGE_DIRECTORY = '/var/lib/cloudless';

/** @throws kind `invalid`, naming the option. */
export function checkOptions(options: CriRuntimeOptions): void {
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
  const wrong = (message: string): CloudlessError => new CloudlessError('invalid', message);
  if (!path.isAbsolute(socketPath)) throw wrong('socketPath: must be an absolute path');
  if (!path.isAbsolute(logDirectory)) throw wrong('logDirectory: must be an absolute path');
  if (!path.isAbsolute(volumeDirectory)) throw wrong('volumeDirectory: must be an absolute path');
  if (!path.isAbsolute(imageDirectory)) throw wrong('imageDirectory: must be an absolute path');
  if (!(maxPids >= 1)) throw wrong('maxPids: must be 1 or more');
  if (owner.cluster === '' || owner.node === '')
    throw wrong('owner: cluster and node must not be empty');
  if (!(logFiles >= 2 && logFileBytes >= 1))
    throw wrong('logFiles: must be 2 or more, of 1 byte or more');
}

/** Keeps the disk from filling up with images. */
export function toCollector(client: CriClient, options: CriRuntimeOptions): ImageCollector {
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

/** Where volumes are. */
export function toVolumeStore(options: CriRuntimeOptions): VolumeStore {
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
    `${socketPath}.ttrpc`,
    logDirectory,
    directory,
    options.imageDirectory ?? IMAGE_DIRECTORY,
    ...guardedPaths,
  ];
  return new VolumeStore(directory, { allowed, guarded }, () => clock.wallTime());
}
