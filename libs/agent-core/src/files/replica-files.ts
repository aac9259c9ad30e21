import { create } from '@bufbuild/protobuf';
import {
  backoffDelayMs,
  CloudlessError,
  definedFields,
  errorFields,
  errorKindOf,
  errorMessageOf,
  type BackoffPolicy,
  type Clock,
  type Log,
  type Random,
  type StopSignal,
  type Timer,
} from '@cloudless/base';
import {
  GetReplicaFilesRequestSchema,
  Reload_Mode as ReloadMode,
  type WorkloadSpec,
} from '@cloudless/api';
import type { ContainerSignal, ImageCredentials } from '@cloudless/runtime';
import type { FileCalls } from '../session/coordinator-transport.js';
import { SerialQueue } from '../store/serial-queue.js';
import {
  hasFiles,
  listFileRefs,
  toFileSet,
  toPullSecret,
  toRefId,
  type FileRef,
} from './file-refs.js';
import { FILES_REASON, toFilesAccess, type FilesAccess } from './files-access.js';
import { collectValues, type FetchFiles } from './collect-values.js';
import {
  createMissingError,
  isComplete,
  isRefusal,
  isSame,
  isTemporary,
  mergeValues,
  requireValues,
} from './replica-values.js';
import { toImageCredentials } from './image-credentials.js';
import type { ReplicaFileStore, ReplicaValues } from './replica-file-store.js';

export interface ReplicaFilesOptions {
  readonly nodeId: string;
  readonly store: ReplicaFileStore;
  /**
   * Sends a signal to the main process of a replica.
   * @returns False when no process runs. The next start reads the new files.
   * @throws kind `unavailable` while the process is being started.
   */
  readonly sendSignal: (replicaId: string, signal: ContainerSignal) => Promise<boolean>;
  /** Reports why files of a running replica are outdated; empty when they no longer are. */
  readonly report: (replicaId: string, reason: string) => void;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Log;
}

type FilesSpec = Pick<WorkloadSpec, 'secrets' | 'configs' | 'imagePull' | 'image' | 'security'>;

/** Delay between attempts to bring files up to date, or to send a signal. */
const REFRESH_BACKOFF: BackoffPolicy = { firstMs: 500, maxMs: 60_000, jitter: 0.2 };
/**
 * Bound of the tmpfs for each reference, bytes: the old and the new version of up to 1 MB of values
 * in 100 files, each of which takes whole pages.
 */
const BYTES_PER_REF = 4 * 1024 * 1024;

/** State of one replica. */
interface Entry {
  readonly spec: FilesSpec;
  readonly refs: readonly FileRef[];
  /** Values in the files, by {@link toRefId}. Contains those that `access` is made of. */
  values: ReadonlyMap<string, ReplicaValues>;
  access: FilesAccess | undefined;
  timer: Timer | undefined;
  failures: number;
}

/**
 * Keeps the secrets and configs of each replica that uses some: from before the start of the first
 * container until the replica is forgotten.
 */
export class ReplicaFiles {
  private readonly entries = new Map<string, Entry>();
  /** Changes of the files of one replica run one after the other. */
  private readonly queues = new Map<string, SerialQueue>();
  private readonly closing = new AbortController();
  /** Calls over the connection of the newest session; they fail once the session has ended. */
  private calls: FileCalls | undefined;
  private readonly fetchFiles: FetchFiles = (request, signal) => {
    if (this.calls !== undefined) return this.calls.getReplicaFiles(request, signal);
    throw new CloudlessError('unavailable', 'this node has no session with a coordinator');
  };

  constructor(private readonly options: ReplicaFilesOptions) {}

  /** Returns what the containers of a replica get; undefined before {@link prepare}. */
  findAccess(replicaId: string): FilesAccess | undefined {
    return this.entries.get(replicaId)?.access;
  }

  /**
   * Provides values and files before a container is started. Without a coordinator, the values are
   * those of the local copy.
   * @throws when the coordinator refuses the values, or does not answer and the copy lacks some;
   *   kind `unavailable` when a retry may succeed.
   */
  prepare(replicaId: string, spec: FilesSpec, signal?: StopSignal): Promise<void> {
    return this.run(replicaId, async () => {
      const entry = this.openEntry(replicaId, spec);
      try {
        const known = entry.values.size > 0 ? entry.values : await this.readCopy(replicaId);
        const { values, imageCredentials } = await this.obtain(replicaId, entry, known, signal);
        // The container starts with these values, so no signal is due.
        const current = new Map(
          [...values].map(([id, each]) => [id, { ...each, signalPending: false }]),
        );
        await this.saveCopy(replicaId, current);
        await this.putInPlace(replicaId, entry, current, imageCredentials);
        entry.timer?.cancel();
        entry.failures = 0;
      } catch (reason) {
        const message = `${FILES_REASON}no values for the replica: ${errorMessageOf(reason)}`;
        throw new CloudlessError(errorKindOf(reason), message, { cause: reason });
      }
    });
  }

  /** Forgets the credentials for the image. Call it when the container has been started. */
  dropCredentials(replicaId: string): void {
    const entry = this.entries.get(replicaId);
    if (entry?.access?.imageCredentials === undefined) return;
    const { imageCredentials: _, ...access } = entry.access;
    entry.access = access;
  }

  /**
   * Goes on with the replicas of an earlier agent, and removes the files of all others. Writes files
   * that are missing, as after a restart of the machine, from the local copy.
   * @param replicas - The replicas of this node that use files, with their specs.
   */
  async restore(replicas: ReadonlyMap<string, FilesSpec>): Promise<void> {
    for (const replicaId of await this.options.store.list()) {
      const spec = replicas.get(replicaId);
      try {
        await this.run(replicaId, async () => {
          if (spec === undefined) return this.options.store.remove(replicaId);
          const entry = this.openEntry(replicaId, spec);
          const values = await this.readCopy(replicaId);
          if (isComplete(entry.refs, values)) await this.putInPlace(replicaId, entry, values);
        });
      } catch (reason) {
        this.options.log.warn('files of the replica not restored', {
          replicaId,
          ...errorFields(reason),
        });
      }
    }
  }

  /**
   * Uses the connection of a new session, and brings the files of all replicas up to date, because a
   * message about a change may have been lost.
   */
  useCalls(calls: FileCalls): void {
    this.calls = calls;
    this.refresh([...this.entries.keys()]);
  }

  /** Brings the files of these replicas up to date. Ignores replicas without such files. */
  refresh(replicaIds: readonly string[]): void {
    for (const replicaId of replicaIds) {
      const entry = this.entries.get(replicaId);
      if (entry === undefined) continue;
      entry.failures = 0;
      void this.run(replicaId, () => this.refreshOne(replicaId));
    }
  }

  /** Removes the files and the copy of a replica. */
  async remove(replicaId: string): Promise<void> {
    await this.run(replicaId, async () => {
      this.entries.get(replicaId)?.timer?.cancel();
      this.entries.delete(replicaId);
      await this.options.store.remove(replicaId);
    });
    this.queues.delete(replicaId);
  }

  /** Removes the files of all replicas. */
  async removeAll(): Promise<void> {
    for (const replicaId of await this.options.store.list()) await this.remove(replicaId);
  }

  /** Ends the updates. The files stay, because the containers keep running. */
  close(): void {
    this.closing.abort();
    for (const { timer } of this.entries.values()) timer?.cancel();
  }

  private openEntry(replicaId: string, spec: FilesSpec): Entry {
    const before = this.entries.get(replicaId);
    const entry: Entry = {
      spec,
      refs: listFileRefs(spec),
      values: before?.values ?? new Map(),
      access: before?.access,
      timer: before?.timer,
      failures: before?.failures ?? 0,
    };
    this.entries.set(replicaId, entry);
    return entry;
  }

  /** Fetches the values for a start, or takes them from the copy while no coordinator answers. */
  private async obtain(
    replicaId: string,
    { spec, refs }: Entry,
    known: ReadonlyMap<string, ReplicaValues>,
    signal: StopSignal | undefined,
  ): Promise<{
    readonly values: ReadonlyMap<string, ReplicaValues>;
    readonly imageCredentials?: ImageCredentials;
  }> {
    const secret = toPullSecret(spec);
    try {
      const { values, pull } = await this.fetch(replicaId, refs, known, signal);
      if (secret === '') return { values };
      if (pull === undefined) throw createMissingError(`image pull secret ${secret}`);
      return { values, imageCredentials: toImageCredentials(secret, spec.image, pull) };
    } catch (reason) {
      await this.dropCopyIfRefused(replicaId, reason);
      const hasStarted = refs.length > 0 || this.entries.get(replicaId)?.access !== undefined;
      if (!isTemporary(reason) || !hasStarted || !isComplete(refs, known)) throw reason;
      this.options.log.info('values of the replica taken from the local copy', {
        replicaId,
        ...errorFields(reason),
      });
      // Without credentials, the start succeeds with an image that is on this node.
      return { values: known };
    }
  }

  /** Calls GetReplicaFiles and adds the values that were known already. */
  private async fetch(
    replicaId: string,
    refs: readonly FileRef[],
    known: ReadonlyMap<string, ReplicaValues>,
    signal?: StopSignal,
  ): Promise<{
    readonly values: ReadonlyMap<string, ReplicaValues>;
    readonly pull?: ReadonlyMap<string, Uint8Array>;
  }> {
    const { nodeId } = this.options;
    const request = create(GetReplicaFilesRequestSchema, {
      ...{ nodeId, replicaId, known: [...known.values()].map(({ version }) => version) },
    });
    const stops = [signal, this.closing.signal].filter((each) => each !== undefined);
    const responses = await collectValues(this.fetchFiles, request, stops, this.options.clock);
    return mergeValues(refs, known, responses);
  }

  /** Writes the files and sets what the containers get. Files that are in place are not written. */
  private async putInPlace(
    replicaId: string,
    entry: Entry,
    values: ReadonlyMap<string, ReplicaValues>,
    imageCredentials?: ImageCredentials,
  ): Promise<void> {
    const { refs, spec } = entry;
    const isProcess = spec.image === '';
    const withFiles = refs.filter(hasFiles);
    const directory =
      withFiles.length === 0 && !(isProcess && refs.length > 0)
        ? undefined
        : await this.options.store.open(replicaId, {
            sizeBytes: BYTES_PER_REF * Math.max(1, withFiles.length),
            isPrivate: isProcess,
          });
    for (const ref of withFiles) await this.write(replicaId, ref, requireValues(values, ref), spec);
    entry.values = values;
    entry.access = {
      ...toFilesAccess(spec, refs, directory, (ref) => requireValues(values, ref).data),
      ...definedFields({ imageCredentials }),
    };
  }

  private async write(
    replicaId: string,
    ref: FileRef,
    { version, data }: ReplicaValues,
    spec: FilesSpec,
  ): Promise<void> {
    const set = toFileSet(ref, version, data, spec);
    if (set !== undefined) await this.options.store.write(replicaId, set);
  }

  /**
   * Fetches the newest values of the references that follow changes, replaces their files, and sends
   * the signals. Which signals are due is stored before the files change, so that a crash of the
   * agent loses none. Schedules another attempt after a failure. Never rejects.
   */
  private async refreshOne(replicaId: string): Promise<void> {
    const entry = this.entries.get(replicaId);
    // Files of a replica that has not been prepared are written with its start.
    if (entry?.access === undefined || this.closing.signal.aborted) return;
    const following = entry.refs.filter(({ reload }) => reload !== ReloadMode.RESTART);
    if (following.length === 0) return;
    entry.timer?.cancel();
    try {
      const { values: fetched } = await this.fetch(replicaId, entry.refs, entry.values);
      await this.applyChanges(replicaId, entry, following, fetched);
      await this.sendSignals(replicaId, entry, following);
      entry.failures = 0;
      this.options.report(replicaId, '');
    } catch (reason) {
      await this.handleFailure(replicaId, entry, reason);
    }
  }

  private async applyChanges(
    replicaId: string,
    entry: Entry,
    following: readonly FileRef[],
    fetched: ReadonlyMap<string, ReplicaValues>,
  ): Promise<void> {
    const changed = following.filter(
      (ref) =>
        !isSame(requireValues(entry.values, ref).version, requireValues(fetched, ref).version),
    );
    if (changed.length === 0) return;
    const values = new Map(entry.values);
    for (const ref of changed) {
      const signalPending = ref.signal !== undefined;
      values.set(toRefId(ref), { ...requireValues(fetched, ref), signalPending });
    }
    await this.saveCopy(replicaId, values);
    for (const ref of changed)
      await this.write(replicaId, ref, requireValues(values, ref), entry.spec);
    entry.values = values;
    this.options.log.info('files of the replica replaced', {
      replicaId,
      names: changed.map(
        (ref) => `${toRefId(ref)} version ${requireValues(values, ref).version.version}`,
      ),
    });
  }

  private async sendSignals(
    replicaId: string,
    entry: Entry,
    following: readonly FileRef[],
  ): Promise<void> {
    const isDue = (ref: FileRef): boolean => requireValues(entry.values, ref).signalPending;
    const signals = new Set(following.filter(isDue).flatMap(({ signal }) => signal ?? []));
    for (const signal of signals) {
      const wasSent = await this.options.sendSignal(replicaId, signal);
      if (wasSent) this.options.log.info('signal sent after a change', { replicaId, signal });
      const served = new Set(following.filter((ref) => ref.signal === signal).map(toRefId));
      entry.values = new Map(
        [...entry.values].map(([id, each]) => [
          id,
          served.has(id) ? { ...each, signalPending: false } : each,
        ]),
      );
    }
    if (signals.size > 0) await this.saveCopy(replicaId, entry.values);
  }

  private async handleFailure(replicaId: string, entry: Entry, reason: unknown): Promise<void> {
    const { clock, random, log, report } = this.options;
    if (this.closing.signal.aborted || this.entries.get(replicaId) !== entry) return;
    await this.dropCopyIfRefused(replicaId, reason);
    const level = entry.failures === 0 ? 'warn' : 'debug';
    log[level]('files of the replica not up to date', { replicaId, ...errorFields(reason) });
    report(replicaId, `${FILES_REASON}not up to date: ${errorMessageOf(reason)}`);
    // A replica that left this node gets no values any more.
    if (isRefusal(reason)) return;
    entry.failures += 1;
    const delayMs = backoffDelayMs(REFRESH_BACKOFF, entry.failures, random);
    entry.timer?.cancel();
    entry.timer = clock.setTimer(
      delayMs,
      () => void this.run(replicaId, () => this.refreshOne(replicaId)),
    );
  }

  private async dropCopyIfRefused(replicaId: string, reason: unknown): Promise<void> {
    if (!isRefusal(reason)) return;
    this.options.log.warn('the coordinator refuses the values of the replica', {
      replicaId,
      ...errorFields(reason),
    });
    await this.options.store.removeCopy(replicaId);
  }

  private async readCopy(replicaId: string): Promise<ReadonlyMap<string, ReplicaValues>> {
    const values = await this.options.store.readCopy(replicaId);
    return new Map(values.map((each) => [toRefId(each.version), each]));
  }

  /** Stores the copy. Without a copy, only restarts without a coordinator fail. */
  private async saveCopy(
    replicaId: string,
    values: ReadonlyMap<string, ReplicaValues>,
  ): Promise<void> {
    if (values.size === 0) return;
    try {
      await this.options.store.saveCopy(replicaId, [...values.values()]);
    } catch (reason) {
      this.options.log.warn('local copy of the values not stored', {
        replicaId,
        ...errorFields(reason),
      });
    }
  }

  private run<Result>(replicaId: string, task: () => Promise<Result>): Promise<Result> {
    const queue = this.queues.get(replicaId) ?? new SerialQueue();
    this.queues.set(replicaId, queue);
    return queue.run(task);
  }
}
