import { statfs } from 'node:fs/promises';
import { errorFields, type Clock, type Log } from '@cloudless/base';
import type { CriClient } from '../client/cri-client.js';
import type { Images } from './images.js';
import { addPull, type ImageLedger } from './image-ledger.js';
import {
  selectImagesToRemove,
  type CollectionLimits,
  type DiskUse,
  type PresentImage,
  type PulledImage,
} from './select-images.js';

/** Arguments of {@link ImageCollector}. */
export interface ImageCollectorOptions {
  readonly client: CriClient;
  readonly ledger: ImageLedger;
  /** Name of the cluster whose images are removed. */
  readonly cluster: string;
  readonly limits: CollectionLimits;
  /**
   * Reads the usage of the file system with the images. When undefined, the runtime names the file
   * system and the kernel reports its usage.
   */
  readonly readDisk: (() => Promise<DiskUse>) | undefined;
  readonly clock: Clock;
  readonly log: Log;
}

/** Records the images that this cluster pulled, and removes unused ones when the disk fills up. */
export class ImageCollector {
  private isDiskShort = false;

  constructor(private readonly options: ImageCollectorOptions) {}

  /**
   * Begins the record of a pull. Call it before the pull, because the record depends on the images
   * that existed before. Failures are logged; an image without a record is never removed.
   * @returns A function that completes the record. Call it with the id of the pulled image.
   */
  async recordPull(): Promise<(id: string) => Promise<void>> {
    try {
      const before = await this.listImages();
      return (id) =>
        this.completeRecord(id, before).catch((reason: unknown) => this.warnNotRecorded(reason));
    } catch (reason) {
      this.warnNotRecorded(reason);
      return async () => undefined;
    }
  }

  /**
   * Updates the times of use in the ledger, and removes unused images when the disk is too full. A
   * failed removal is logged.
   * @throws kind `unavailable` when the runtime does not answer, or another agent holds the ledger
   *   for too long.
   */
  async collect(images: Images): Promise<void> {
    const { ledger, cluster } = this.options;
    if (!ledger.read().some((each) => each.cluster === cluster)) return;
    await ledger.change(async (pulled) => {
      const present = await this.listImages();
      const inUse = new Set([...(await this.listUsedImages()), ...images.getHeldIds()]);
      const current = this.updateUseTimes(pulled, present, inUse, images.getIdleMs());
      const removed = await this.removeUnused(images, { present, inUse, pulled: current });
      return current.filter(({ id }) => !removed.has(id));
    });
  }

  private async completeRecord(id: string, before: readonly PresentImage[]): Promise<void> {
    const { ledger, cluster, clock } = this.options;
    const image = (await this.listImages()).find((each) => each.id === id);
    if (image === undefined) return;
    await ledger.change(async (pulled) =>
      addPull(pulled, { before, image, cluster, nowMs: clock.wallTime() }),
    );
  }

  private warnNotRecorded(reason: unknown): void {
    this.options.log.warn(
      'pulled image not recorded: it will stay on this node',
      errorFields(reason),
    );
  }

  /**
   * Returns the pulled images that still exist, with their times of use. A time in the future, from
   * before the wall clock was set back, becomes the current time.
   * @param idleMs - Milliseconds since the last request for each image, by image id.
   */
  private updateUseTimes(
    pulled: readonly PulledImage[],
    present: readonly PresentImage[],
    inUse: ReadonlySet<string>,
    idleMs: ReadonlyMap<string, number>,
  ): readonly PulledImage[] {
    const nowMs = this.options.clock.wallTime();
    return pulled.flatMap((each) => {
      const image = present.find(({ id }) => id === each.id);
      if (image === undefined) return [];
      const idle = idleMs.get(each.id);
      const requestedAtMs = idle === undefined ? 0 : Math.round(nowMs - idle);
      const usedAtMs = isUsed(image, inUse)
        ? nowMs
        : Math.min(nowMs, Math.max(each.usedAtMs, requestedAtMs));
      return [{ ...each, usedAtMs }];
    });
  }

  /** Removes unused images until the disk is no longer too full. Returns their ids. */
  private async removeUnused(
    images: Images,
    {
      present,
      inUse,
      pulled,
    }: Pick<Parameters<typeof selectImagesToRemove>[0], 'inUse' | 'pulled'> & {
      readonly present: readonly PresentImage[];
    },
  ): Promise<ReadonlySet<string>> {
    const { cluster, limits, clock, log } = this.options;
    const disk = await this.readDiskUse();
    const removed = new Set<string>();
    if (disk === undefined) return removed;
    const selection = selectImagesToRemove({
      cluster,
      images: present,
      pulled,
      inUse,
      disk,
      limits,
      nowMs: clock.wallTime(),
    });
    this.warnWhenShort(selection.missingBytes, disk);
    for (const id of selection.remove) {
      const image = present.find((each) => each.id === id);
      // Read the containers again: another agent may have created a container with the image.
      if (image === undefined || isUsed(image, await this.listUsedImages())) continue;
      const { names, sizeBytes } = image;
      try {
        if (!(await images.removeIdle(id, limits.minIdleMs, () => this.remove(id)))) continue;
        removed.add(id);
        log.info('image removed to free the disk', { image: names[0] ?? id, sizeBytes });
      } catch (reason) {
        log.warn('image not removed', { image: names[0] ?? id, ...errorFields(reason) });
      }
    }
    return removed;
  }

  /** Logs a warning when a shortage begins, and not again until it has ended. */
  private warnWhenShort(missingBytes: number, disk: DiskUse): void {
    if (missingBytes > 0 && !this.isDiskShort) {
      this.options.log.warn(
        'the disk for images is nearly full, and no more images of this cluster can be removed',
        { missingBytes, ...disk },
      );
    }
    this.isDiskShort = missingBytes > 0;
  }

  private async remove(id: string): Promise<void> {
    await this.options.client.callImage('RemoveImage', (calls, signal) =>
      calls.removeImage({ image: { image: id } }, { signal }),
    );
  }

  private async listImages(): Promise<readonly PresentImage[]> {
    const { images } = await this.options.client.callQuickImage('ListImages', (calls, signal) =>
      calls.listImages({}, { signal }),
    );
    return images.map(({ id, repoTags, repoDigests, size, pinned }) => ({
      id,
      names: [...repoTags, ...repoDigests],
      sizeBytes: Number(size),
      isPinned: pinned,
    }));
  }

  /** Lists the names and ids of the images of all containers, of any owner. */
  private async listUsedImages(): Promise<ReadonlySet<string>> {
    const { containers } = await this.options.client.callQuick('ListContainers', (calls, signal) =>
      calls.listContainers({}, { signal }),
    );
    return new Set(
      containers.flatMap(({ image, imageRef, imageId }) => [image?.image ?? '', imageRef, imageId]),
    );
  }

  /** Reads the usage of the disk; undefined when the runtime does not name its file system. */
  private async readDiskUse(): Promise<DiskUse | undefined> {
    const { client, readDisk } = this.options;
    if (readDisk !== undefined) return readDisk();
    const { imageFilesystems } = await client.callQuickImage('ImageFsInfo', (calls, signal) =>
      calls.imageFsInfo({}, { signal }),
    );
    const directory = imageFilesystems[0]?.fsId?.mountpoint ?? '';
    if (directory === '') return undefined;
    const { blocks, bavail, bsize } = await statfs(directory);
    return { capacityBytes: blocks * bsize, availableBytes: bavail * bsize };
  }
}

function isUsed({ id, names }: PresentImage, inUse: ReadonlySet<string>): boolean {
  return inUse.has(id) || names.some((name) => inUse.has(name));
}
