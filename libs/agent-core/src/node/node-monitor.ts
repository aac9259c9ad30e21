import { create } from '@bufbuild/protobuf';
import { errorFields, sleep, type Clock, type Log } from '@cloudless/base';
import {
  Condition_Type,
  ConditionSchema,
  NodeUsageSchema,
  UsageSchema,
  type Condition,
  type Usage,
} from '@cloudless/api';

/** Resource usage and pressure of a machine at one moment. */
export interface NodeReading {
  /** Thousandths of a core, averaged since the previous reading; absent in the first reading. */
  readonly cpuMillis?: number;
  /** Memory in use. */
  readonly memoryBytes: number;
  /** Disk space in use on the file system of the data directory. */
  readonly storageBytes: number;
  readonly memoryPressure: ConditionReading;
  readonly diskPressure: ConditionReading;
  /** The data directory has so little space that the node must get nothing new. Default: false. */
  readonly diskFull?: ConditionReading;
}

/** Status of a node condition, and a reason for people. */
export interface ConditionReading {
  readonly status: boolean;
  readonly reason: string;
}

/** Reads usage and pressure of the machine. */
export interface NodeReader {
  read(): Promise<NodeReading>;
}

/** Time between two readings of the machine. */
export const READ_INTERVAL_MS = 2_000;

/**
 * Reads usage and pressure of the machine every {@link READ_INTERVAL_MS} and keeps the newest
 * reading.
 */
export class NodeMonitor {
  private reading: NodeReading | undefined;
  private networkProxy: ConditionReading | undefined;
  private failing = false;

  constructor(
    private readonly deps: {
      readonly reader: NodeReader;
      readonly clock: Clock;
      readonly log: Log;
      /** Current CONTAINER_RUNTIME_UNAVAILABLE condition. */
      readonly containerRuntimeCondition?: () => ConditionReading;
      /** Current PROCESS_RUNTIME_UNAVAILABLE condition. */
      readonly processRuntimeCondition?: () => ConditionReading;
      /** Current NETWORK_PROXY_DEGRADED condition. */
      readonly networkProxyCondition?: () => ConditionReading;
    },
  ) {}

  /** Conditions of the newest reading; all are false before the first reading. */
  get conditions(): Condition[] {
    const { memoryPressure, diskPressure, diskFull } = this.reading ?? {};
    return [
      toCondition(Condition_Type.MEMORY_PRESSURE, memoryPressure),
      toCondition(Condition_Type.DISK_PRESSURE, diskPressure),
      toCondition(
        Condition_Type.CONTAINER_RUNTIME_UNAVAILABLE,
        this.deps.containerRuntimeCondition?.(),
      ),
      toCondition(Condition_Type.NETWORK_PROXY_DEGRADED, this.networkProxy),
      toCondition(Condition_Type.DISK_FULL, diskFull),
      toCondition(
        Condition_Type.PROCESS_RUNTIME_UNAVAILABLE,
        this.deps.processRuntimeCondition?.(),
      ),
    ];
  }

  /** Usage of the newest reading; undefined before the first reading. */
  get usage(): Usage | undefined {
    const { reading } = this;
    if (reading === undefined) return undefined;
    const usage = create(NodeUsageSchema, {
      cpuMillis: Math.max(0, Math.round(reading.cpuMillis ?? 0)),
      memoryBytes: BigInt(Math.max(0, Math.round(reading.memoryBytes))),
      storageBytes: BigInt(Math.max(0, Math.round(reading.storageBytes))),
    });
    return create(UsageSchema, { usage, conditions: this.conditions });
  }

  /**
   * Reads the machine. Keeps the previous reading when the read fails.
   * @returns True when a condition has changed.
   */
  async refresh(): Promise<boolean> {
    const before = this.reading;
    const networkProxyBefore = this.networkProxy?.reason;
    this.networkProxy = this.deps.networkProxyCondition?.();
    try {
      this.reading = await this.deps.reader.read();
      this.failing = false;
    } catch (reason) {
      if (!this.failing) this.deps.log.warn('machine not read', errorFields(reason));
      this.failing = true;
    }
    const after = this.reading;
    return (
      before?.memoryPressure.status !== after?.memoryPressure.status ||
      before?.diskPressure.status !== after?.diskPressure.status ||
      before?.diskFull?.status !== after?.diskFull?.status ||
      networkProxyBefore !== this.networkProxy?.reason
    );
  }

  /**
   * Reads the machine every {@link READ_INTERVAL_MS} until `signal` is aborted.
   * @param onConditionChange - Called as soon as a condition has changed.
   */
  async run(onConditionChange: () => void, signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await sleep(this.deps.clock, READ_INTERVAL_MS, signal).catch(() => undefined);
      if (!signal.aborted && (await this.refresh())) onConditionChange();
    }
  }
}

function toCondition(
  type: Condition_Type,
  pressure: ConditionReading = { status: false, reason: '' },
): Condition {
  return create(ConditionSchema, { type, ...pressure });
}
