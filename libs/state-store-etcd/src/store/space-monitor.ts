import { errorFields, type Clock, type Log, type Timer } from '@cloudless/base';
import { READ, type EtcdClient } from '../client/etcd-client.js';
import { AlarmType } from '../gen/etcd/etcdserverpb/rpc_pb.js';

/** Interval at which the alarms are read while etcd refuses writes. */
const CHECK_MS = 5_000;

export interface SpaceMonitorOptions {
  readonly client: EtcdClient;
  readonly clock: Clock;
  readonly log: Log;
  readonly onSpaceChange: (hasSpace: boolean) => void;
}

/** Reports when etcd refuses writes because of its space quota, and when it accepts them again. */
export class SpaceMonitor {
  private hasSpace = true;
  private timer: Timer | undefined;

  constructor(private readonly options: SpaceMonitorOptions) {}

  /** Call when etcd refused a write because its space quota is exceeded. */
  recordRefusal(): void {
    if (!this.hasSpace) return;
    this.hasSpace = false;
    this.options.log.error('space quota of etcd exceeded: writes are refused');
    this.options.onSpaceChange(false);
    this.scheduleCheck();
  }

  /** Call when etcd accepted a write. */
  recordWrite(): void {
    if (this.hasSpace) return;
    this.stop();
    this.hasSpace = true;
    this.options.log.info('etcd accepts writes again');
    this.options.onSpaceChange(true);
  }

  stop(): void {
    this.timer?.cancel();
  }

  private scheduleCheck(): void {
    this.timer = this.options.clock.setTimer(CHECK_MS, () => void this.check());
  }

  private async check(): Promise<void> {
    const { client, log } = this.options;
    try {
      const { alarms } = await client.call(READ, ({ maintenance }, settings) =>
        maintenance.alarm({}, settings),
      );
      if (!alarms.some(({ alarm }) => alarm === AlarmType.NOSPACE)) this.recordWrite();
    } catch (reason) {
      log.warn('alarms of etcd not read', errorFields(reason));
    }
    if (!this.hasSpace && !client.closed.aborted) this.scheduleCheck();
  }
}
