import type { Clock, Timer } from '@cloudless/base';
import type { NetworkChanges, NetworkView } from '../model/network-model.js';
import { toServiceSettings } from './service-settings.js';

/**
 * The times at which connections to endpoints that leave end. An endpoint that is merely not ready
 * keeps its connections, and one that stays after all has no limit any more.
 */
export class DrainLimits {
  private readonly timers = new Map<string, Timer>();

  /** @param end - Ends the connections to an endpoint. */
  constructor(
    private readonly clock: Clock,
    private readonly end: (endpointId: string) => void,
  ) {}

  /** Follows a change. The cost is proportional to the endpoints of the changed services. */
  apply(view: NetworkView, { endpointsOf, removedEndpoints }: NetworkChanges): void {
    for (const id of removedEndpoints) this.cancel(id);
    for (const key of endpointsOf) {
      const service = view.services.get(key);
      for (const { id, leaving } of view.endpointsOf(key).values()) {
        if (!leaving || service === undefined) this.cancel(id);
        else if (!this.timers.has(id)) this.limit(id, toServiceSettings(service).drainTimeoutMs);
      }
    }
  }

  close(): void {
    for (const timer of this.timers.values()) timer.cancel();
    this.timers.clear();
  }

  private limit(id: string, timeoutMs: number): void {
    if (timeoutMs > 0)
      this.timers.set(
        id,
        this.clock.setTimer(timeoutMs, () => this.end(id)),
      );
  }

  private cancel(id: string): void {
    this.timers.get(id)?.cancel();
    this.timers.delete(id);
  }
}
