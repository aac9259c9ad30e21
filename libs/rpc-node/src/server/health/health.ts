import { Code, ConnectError, type ConnectRouter } from '@connectrpc/connect';
import { Health, HealthCheckResponse_ServingStatus as WireStatus } from '@cloudless/api/grpc';

/** Status of one service. */
export type ServingStatus = 'serving' | 'notServing';

/**
 * The statuses that the health service of a server reports: one status for each service, and the
 * status of the server as a whole under the name ''. That status is `serving` at first.
 */
export class HealthState {
  private readonly statuses = new Map<string, ServingStatus>([['', 'serving']]);
  private readonly listeners = new Set<() => void>();

  /** @returns The status of a service; undefined for an unknown service. */
  getStatus(service: string): ServingStatus | undefined {
    return this.statuses.get(service);
  }

  /**
   * Sets the status of one service.
   * @param service - Full name as in `cloudless.api.CoordinatorService`, or '' for the server as a
   *   whole.
   */
  set(service: string, status: ServingStatus): void {
    if (this.statuses.get(service) === status) return;
    this.statuses.set(service, status);
    this.notifyListeners();
  }

  /** Sets the status of every known service and of the server as a whole. */
  setAll(status: ServingStatus): void {
    for (const service of this.statuses.keys()) this.statuses.set(service, status);
    this.notifyListeners();
  }

  /**
   * Runs `listener` after each change.
   * @returns A function that ends the subscription.
   */
  onChange(listener: () => void): () => void {
    const subscription = (): void => listener();
    this.listeners.add(subscription);
    return () => void this.listeners.delete(subscription);
  }

  private notifyListeners(): void {
    for (const listener of [...this.listeners]) listener();
  }
}

/** Adds the standard health service (`grpc.health.v1.Health`). */
export function registerHealthService(router: ConnectRouter, health: HealthState): void {
  router.service(Health, {
    check: ({ service }) => {
      const status = health.getStatus(service);
      if (status === undefined)
        throw new ConnectError(
          `this server has no service ${JSON.stringify(service)}`,
          Code.NotFound,
        );
      return { status: toWire(status) };
    },
    /**
     * Sends the current status, then each change. A slow reader may miss statuses, but never the
     * last one.
     */
    watch: async function* ({ service }, { signal }) {
      let wake: () => void = () => undefined;
      const unsubscribe = health.onChange(() => wake());
      const onAbort = (): void => wake();
      signal.addEventListener('abort', onAbort, { once: true });
      try {
        let sent: WireStatus | undefined;
        while (!signal.aborted) {
          const status = toWire(health.getStatus(service));
          if (status !== sent) yield { status: (sent = status) };
          else await new Promise<void>((resolve) => (wake = resolve));
        }
      } finally {
        signal.removeEventListener('abort', onAbort);
        unsubscribe();
      }
    },
  });
}

function toWire(status: ServingStatus | undefined): WireStatus {
  if (status === undefined) return WireStatus.SERVICE_UNKNOWN;
  return status === 'serving' ? WireStatus.SERVING : WireStatus.NOT_SERVING;
}
