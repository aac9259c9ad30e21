/** An image on this machine. */
export interface PresentImage {
  readonly id: string;
  /** All names of the image, with tag or digest. */
  readonly names: readonly string[];
  readonly sizeBytes: number;
  /** Whether the runtime protects the image from removal. */
  readonly isPinned: boolean;
}

/** An image that a cluster pulled, and that did not exist before. */
export interface PulledImage {
  readonly id: string;
  readonly cluster: string;
  /** Names under which the cluster pulled it. */
  readonly names: readonly string[];
  /** Wall-clock milliseconds at which a container last used the image or was about to use it. */
  readonly usedAtMs: number;
}

/**
 * Limits of the disk usage in percent of its capacity, and the minimum idle time of removed images.
 */
export interface CollectionLimits {
  /** Usage above which images are removed, and usage at which the removal ends. */
  readonly highPercent: number;
  readonly lowPercent: number;
  /** Images that were used within this time stay. */
  readonly minIdleMs: number;
}

/** Input of {@link selectImagesToRemove}. The order of the lists does not matter. */
export interface SelectionInput {
  readonly cluster: string;
  readonly images: readonly PresentImage[];
  readonly pulled: readonly PulledImage[];
  /** Ids and names of images that containers of any owner use or are about to use. */
  readonly inUse: ReadonlySet<string>;
  readonly disk: DiskUse;
  readonly limits: CollectionLimits;
  /** Wall-clock milliseconds. */
  readonly nowMs: number;
}

/** The file system that holds the images. */
export interface DiskUse {
  readonly capacityBytes: number;
  readonly availableBytes: number;
}

/**
 * Images to remove in this order, and the bytes that are still missing to the lower limit
 * afterwards.
 */
export interface ImageSelection {
  readonly remove: readonly string[];
  readonly missingBytes: number;
}

/**
 * Selects the images to remove. Pure: same input, same result.
 * @returns Nothing unless the disk is too full. Otherwise unused images that this cluster pulled
 *   and that have no name from another source, the least recently used first, until enough is free.
 */
export function selectImagesToRemove(observed: SelectionInput): ImageSelection {
  const { disk, limits } = observed;
  const usedBytes = disk.capacityBytes - disk.availableBytes;
  const toBytes = (percent: number): number => (disk.capacityBytes * percent) / 100;
  if (usedBytes <= toBytes(limits.highPercent)) return { remove: [], missingBytes: 0 };
  let missingBytes = usedBytes - toBytes(limits.lowPercent);
  const remove: string[] = [];
  for (const { id, sizeBytes } of findCandidates(observed)) {
    if (missingBytes <= 0) break;
    remove.push(id);
    missingBytes -= sizeBytes;
  }
  return { remove, missingBytes: Math.max(0, missingBytes) };
}

function findCandidates({
  cluster,
  images,
  pulled,
  inUse,
  limits,
  nowMs,
}: SelectionInput): readonly PresentImage[] {
  const ours = new Map(
    pulled.filter((each) => each.cluster === cluster).map((each) => [each.id, each]),
  );
  return images
    .flatMap((image) => {
      const pull = ours.get(image.id);
      const usedAtMs = pull?.usedAtMs ?? nowMs;
      const isOurs = pull !== undefined && image.names.every((name) => pull.names.includes(name));
      const isFree = !image.isPinned && ![image.id, ...image.names].some((name) => inUse.has(name));
      return isOurs && isFree && nowMs - usedAtMs >= limits.minIdleMs ? [{ image, usedAtMs }] : [];
    })
    .sort((a, b) => a.usedAtMs - b.usedAtMs || (a.image.id < b.image.id ? -1 : 1))
    .map(({ image }) => image);
}
