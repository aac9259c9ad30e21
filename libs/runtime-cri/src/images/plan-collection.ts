/** An image that a runtime has. */
export interface PresentImage {
  readonly id: string;
  /** Every name it has, with tag or digest. */
  readonly names: readonly string[];
  readonly sizeBytes: number;
  /** The runtime keeps it for itself. */
  readonly isPinned: boolean;
}

/** An image that a cluster pulled, and that was not there before. */
export interface PulledImage {
  readonly id: string;
  readonly cluster: string;
  /** The names that came with its pulls. */
  readonly names: readonly string[];
  /** When a container last had it, or was to have it; wall-clock milliseconds. */
  readonly usedAtMs: number;
}

/** How full a disk may become, in percent of what there is, and how young an image stays. */
export interface CollectionLimits {
  /** Above this images are removed, until it is at the other. */
  readonly highPercent: number;
  readonly lowPercent: number;
  /** An image that was used since then stays. */
  readonly minIdleMs: number;
}

/** What a collection decides by. Order does not matter. */
export interface CollectionObserved {
  readonly cluster: string;
  readonly images: readonly PresentImage[];
  readonly pulled: readonly PulledImage[];
  /** Ids and names of images that containers have, of anybody, or are about to have. */
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

/** Which images go, the first one first; and how much is then still above the lower limit. */
export interface CollectionPlan {
  readonly remove: readonly string[];
  readonly missingBytes: number;
}

/**
 * Decides which images are removed. Pure: same input, same decision.
 * @returns Nothing unless the disk is too full. Then images that this cluster pulled, that nobody
 *   uses, and that have no name but those that came with our pulls; the least recently used first,
 *   until enough is free.
 */
export function planCollection(observed: CollectionObserved): CollectionPlan {
  const { disk, limits } = observed;
  const usedBytes = disk.capacityBytes - disk.availableBytes;
  const share = (percent: number): number => (disk.capacityBytes * percent) / 100;
  if (usedBytes <= share(limits.highPercent)) return { remove: [], missingBytes: 0 };
  let missingBytes = usedBytes - share(limits.lowPercent);
  const remove: string[] = [];
  for (const { id, sizeBytes } of candidates(observed)) {
    if (missingBytes <= 0) break;
    remove.push(id);
    missingBytes -= sizeBytes;
  }
  return { remove, missingBytes: Math.max(0, missingBytes) };
}

function candidates({
  cluster,
  images,
  pulled,
  inUse,
  limits,
  nowMs,
}: CollectionObserved): readonly PresentImage[] {
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
