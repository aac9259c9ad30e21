import { definedFields, errorFields, type Log } from '@cloudless/base';
import {
  readContainerRecord,
  removeContainerRecord,
  saveContainerRecord,
  type ContainerRecord,
} from './container-record.js';

export interface ContainerRecordKeeperOptions {
  readonly dataDir: string;
  /** Name of the node that owns the containers. */
  readonly node: string;
  readonly log: Pick<Log, 'warn'>;
}

/**
 * Changes the record of the container runtime while an agent runs. Writes the record only when the
 * content differs, so that an agent whose container runtime has not changed starts on a full disk.
 */
export class ContainerRecordKeeper {
  private record: ContainerRecord | undefined;

  /** @throws kind `internal` when the record is damaged. */
  constructor(private readonly options: ContainerRecordKeeperOptions) {
    this.record = readContainerRecord(options.dataDir);
  }

  /** The record; undefined when the agent has no containers. */
  get current(): ContainerRecord | undefined {
    return this.record;
  }

  /**
   * Records that a container runtime may have containers of this node. Keeps the capabilities that
   * are recorded for the same socket. Must be called before the first container is started.
   * @throws errors of the file system unchanged: a container runtime that cannot be recorded must
   *   not be used, because a later agent would forget its containers.
   */
  use(socketPath: string, cluster: string): void {
    const { record } = this;
    const capabilities = record?.socketPath === socketPath ? record.capabilities : undefined;
    const owner = { cluster, node: this.options.node };
    this.save({ socketPath, owner, ...definedFields({ capabilities }) });
  }

  /**
   * Records the capabilities of the container runtime in use. Logs a failure: a later agent only
   * reports the capabilities that were recorded before.
   */
  recordCapabilities(capabilities: readonly string[]): void {
    this.replaceCapabilities(capabilities);
  }

  /** Removes the capabilities from the record. Logs a failure. */
  forgetCapabilities(): void {
    if (this.record?.capabilities !== undefined) this.replaceCapabilities(undefined);
  }

  /** Removes the record. Must be called only when no container is left. */
  remove(): void {
    removeContainerRecord(this.options.dataDir);
    this.record = undefined;
  }

  private replaceCapabilities(capabilities: readonly string[] | undefined): void {
    if (this.record === undefined) return;
    const { socketPath, owner } = this.record;
    try {
      this.save({ socketPath, owner, ...definedFields({ capabilities }) });
    } catch (reason) {
      this.options.log.warn('record of the container runtime not changed', errorFields(reason));
    }
  }

  private save(record: ContainerRecord): void {
    saveContainerRecord(this.options.dataDir, record);
    this.record = record;
  }
}
