import type { CoordinatorConnection, CoordinatorTransport } from '@cloudless/agent-core';
import type { AgentMessage, CoordinatorMessage } from '@cloudless/api';
import type { Clock } from '@cloudless/base';
import { SimConnection } from './sim-connection.js';
import type { ServingCoordinator } from './serving-coordinator.js';
import { connectionError, type SimLink } from './sim-link.js';
import { neverSettle, type SimProcess } from './sim-process.js';

/** The agent, its link, and the coordinator that it dials. */
export interface DialOptions {
  readonly time: Clock;
  /** Returns the link between the agent and the coordinator at an address. */
  readonly linkTo: (address: string) => SimLink;
  readonly agent: SimProcess;
  /** Returns the coordinator that accepts connections at an address, if any. */
  readonly coordinator: (address: string) => ServingCoordinator | undefined;
  readonly onMessage: (
    direction: 'up' | 'down',
    message: AgentMessage | CoordinatorMessage,
  ) => void;
  /** Replaces the connection, to inject a bug. */
  readonly wrap?: ((connection: CoordinatorConnection) => CoordinatorConnection) | undefined;
}

/** Creates the transport of one agent process. */
export function createSimTransport(options: DialOptions): CoordinatorTransport {
  const { wrap = (connection) => connection } = options;
  return {
    connect: async (address, signal, onReached) => {
      const connection = await dial(options, address, signal);
      onReached?.();
      return wrap(connection);
    },
  };
}

/**
 * Performs a handshake of one round trip. While the link is blocked, the handshake is retried until
 * the caller aborts `signal`.
 */
export function dial(
  options: Omit<DialOptions, 'wrap'>,
  address: string,
  signal: AbortSignal,
): Promise<SimConnection> {
  const { time, agent } = options;
  const link = options.linkTo(address);
  if (agent.isDead) return neverSettle();
  return new Promise((resolve, reject) => {
    if (signal.aborted) return reject(connectionError('dialling was given up'));
    signal.addEventListener('abort', () => reject(connectionError('dialling was given up')), {
      once: true,
    });
    link.transmit('up', () => {
      const coordinator = options.coordinator(address);
      link.transmit('down', () =>
        agent.run(() => {
          if (coordinator === undefined || coordinator.process.isDead)
            return reject(connectionError('connection refused'));
          if (signal.aborted) return;
          const { onMessage } = options;
          const connection = coordinator.accept(
            (id) => new SimConnection(id, { time, link, agent, coordinator, onMessage }),
          );
          resolve(connection);
        }),
      );
    });
  });
}
