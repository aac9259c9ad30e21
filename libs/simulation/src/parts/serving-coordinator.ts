import type { Transport } from '@connectrpc/connect';
import type { CoordinatorClient } from '@cloudless/api';
import type { StateStore } from '@cloudless/state-store';
import type { SimConnection } from './sim-connection.js';
import type { SimProcess } from './sim-process.js';

/** A coordinator process as its clients see it. */
export interface ServingCoordinator {
  readonly process: SimProcess;
  /** The store of this process, when the coordinators share none. */
  readonly engine?: StateStore;
  /** A client within the process, without a network. */
  readonly client: CoordinatorClient;
  /** Calls the coordinator within its process. */
  readonly transport: Transport;
  /** Creates a connection with an id by which calls over it are found. */
  accept(create: (id: string) => SimConnection): SimConnection;
}
