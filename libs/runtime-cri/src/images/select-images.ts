/** An image on this machine. */
export interface PresentImage {
  /** Id of the image in the container runtime. */
  readonly id: string;
  /** All names of the image, with tag or digest. */
  readonly names: readonly string[];
  readonly sizeBytes: number;
  /** True when the runtime protects the image from removal. */
  readonly isPinned: boolean;
}

/** An image that a cluster pulled, and that did not exist before the pull. */
export interface PulledImage {
  /** Id of the image in the container runtime. */
  readonly id: string;
  readonly cluster: string;
  /** Names, with tag or digest, that the pulls of this cluster gave to the image. */
  readonly names: readonly string[];
  /** Wall-clock milliseconds at which a container last used the image or was about to use it. */
  readonly usedAtMs: number;
}

/** Limits for the removal of unused images. */
export interface CollectionLimits {
  /** Disk usage in percent of the capacity above which images are removed. */
  readonly highPercent: number;
  /** Disk usage in percent of the capacity at which the removal ends. */
  readonly lowPercent: number;
  /** Images that were used within this time, in milliseconds, stay. */
  readonly minIdleMs: number;
}

/** Input of {@link selectImagesToRemove}. The order of the lists does not matter. */
export interface SelectionInput {
  /** Name of the cluster whose images may be removed. */
  readonly cluster: string;
  readonly images: readonly PresentImage[];
  /** Recorded images of all clusters. */
  readonly pulled: readonly PulledImage[];
  /** Ids and names of images that containers of any owner use or are about to use. */
  readonly inUse: ReadonlySet<string>;
  readonly disk: DiskUse;
  readonly limits: CollectionLimits;
  /** Current wall-clock time in milliseconds. */
  readonly nowMs: number;
}

/** The file system that holds the images. */
export interface DiskUse {
  readonly capacityBytes: number;
  /** Bytes that users other than root can still write. */
  readonly availableBytes: number;
}

/** The images to remove. */
export interface ImageSelection {
  /** Ids of the images, in the order of their removal. */
  readonly remove: readonly string[];
  /**
   * Bytes by which the usage exceeds the lower limit after these removals; 0 when enough is free.
   */
  readonly missingBytes: number;
}

/**
 * Selects the images to remove. Pure: same input, same result.
 * @returns No images unless the disk is too full. Otherwise unused images that this cluster pulled
 *   and that have no name from another source, the least recently used first, until enough is free.
 */
export function selectImagesToRemove(input: SelectionInput): ImageSelection {
  const { disk, limits } = input;
  const usedBytes = disk.capacityBytes - disk.availableBytes;
  const toBytes = (percent: number): number => (disk.capacityBytes * percent) / 100;
  if (usedBytes <= toBytes(limits.highPercent)) return { remove: [], missingBytes: 0 };
  let missingBytes = usedBytes - toBytes(limits.lowPercent);
  const remove: string[] = [];
  for (const { id, sizeBytes } of findCandidates(input)) {
    if (missingBytes <= 0) break;
    remove.push(id);
    missingBytes -= sizeBytes;
  }
  return { remove, missingBytes: Math.max(0, missingBytes) };
}

/** Returns the images that may be removed, the least recently used first. */
function findCandidates({
  cluster,
  images,
  pulled,
  inUse,
  limits,
  nowMs,
}: SelectionInput): readonly PresentImage[] {
  const pulls = new Map(
    pulled.filter((each) => each.cluster === cluster).map((each) => [each.id, each]),
  );
  return images
    .flatMap((image) => {
      const pull = pulls.get(image.id);
      const usedAtMs = pull?.usedAtMs ?? nowMs;
      const isOnlyPulled =
        pull !== undefined && image.names.every((name) => pull.names.includes(name));
      const isUnused =
        !image.isPinned && ![image.id, ...image.names].some((name) => inUse.has(name));
      return isOnlyPulled && isUnused && nowMs - usedAtMs >= limits.minIdleMs
        ? [{ image, usedAtMs }]
        : [];
    })
    .sort((a, b) => a.usedAtMs - b.usedAtMs || (a.image.id < b.image.id ? -1 : 1))
    .map(({ image }) => image);
}
