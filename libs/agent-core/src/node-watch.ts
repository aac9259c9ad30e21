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

/** What a machine uses now, and whether something is short. */
export interface NodeReading {
  /** Thousandths of a core, since the reading before; absent when not known yet. */
  readonly cpuMillis?: number;
  readonly memoryBytes: number;
  /** On the file system of the data directory. */
  readonly storageBytes: number;
  readonly memoryPressure: PressureReading;
  readonly diskPressure: PressureReading;
}

/** One condition, with the numbers behind it for people. */
export interface PressureReading {
  readonly status: boolean;
  readonly reason: string;
}

/** Reads the machine. */
export interface NodeProbe {
  read(): Promise<NodeReading>;
}

/** How often the machine is looked at. */
export const LOOK_INTERVAL_MS = 2_000;

/** Looks at the machine from time to time, and keeps what it saw last. */
export class NodeWatch {
  private reading: NodeReading | undefined;
  private failing = false;

  constructor(
    private readonly deps: {
      readonly probe: NodeProbe;
      readonly clock: Clock;
      readonly log: Log;
      /** True while the container runtime does not answer. */
      readonly containers?: () => PressureReading;
    },
  ) {}

  /** As seen last; nothing is short before the first look. */
  get conditions(): Condition[] {
    const { memoryPressure, diskPressure } = this.reading ?? {};
    return [
      toCondition(Condition_Type.MEMORY_PRESSURE, memoryPressure),
      toCondition(Condition_Type.DISK_PRESSURE, diskPressure),
      toCondition(Condition_Type.CONTAINER_RUNTIME_UNAVAILABLE, this.deps.containers?.()),
    ];
  }

  /** As seen last; undefined before the first look. */
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
   * Takes a reading. @returns Whether a condition has flipped. A failed reading keeps what was seen
   * before.
   */
  async look(): Promise<boolean> {
    const before = this.reading;
    try {
      this.reading = await this.deps.probe.read();
      this.failing = false;
    } catch (reason) {
      if (!this.failing) this.deps.log.warn('machine not read', errorFields(reason));
      this.failing = true;
    }
    const after = this.reading;
    return (
      before?.memoryPressure.status !== after?.memoryPressure.status ||
      before?.diskPressure.status !== after?.diskPressure.status
    );
  }

  /** Looks until aborted. @param onFlip - Told as soon as a condition has flipped. */
  async run(onFlip: () => void, signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await sleep(this.deps.clock, LOOK_INTERVAL_MS, signal).catch(() => undefined);
      if (!signal.aborted && (await this.look())) onFlip();
    }
  }
}

function toCondition(
  type: Condition_Type,
  pressure: PressureReading = { status: false, reason: '' },
): Condition {
  return create(ConditionSchema, { type, ...pressure });
}
