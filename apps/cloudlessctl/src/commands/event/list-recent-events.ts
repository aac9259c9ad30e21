import { Code, ConnectError } from '@connectrpc/connect';
import type { Event } from '@cloudless/api';
import type { CliSession } from '../../call/cli-session.js';
import { NON_AUDIT_CATEGORIES } from './event-filter.js';

/** Number of events in the description of a workload or a node. */
const RECENT_EVENTS = 10;

/**
 * Returns the newest events of a workload or node, oldest first. Returns no events when the
 * coordinator has no events service: a description is useful without events.
 */
export async function listRecentEvents(
  session: CliSession,
  about: { readonly namespace: string; readonly workload: string } | { readonly nodeId: string },
): Promise<readonly Event[]> {
  try {
    const { events } = await session.client.listEvents(
      {
        categories: [...NON_AUDIT_CATEGORIES],
        ...about,
        pageSize: RECENT_EVENTS,
        newestFirst: true,
      },
      session.getCallOptions(),
    );
    return events.reverse();
  } catch (reason) {
    if (reason instanceof ConnectError && reason.code === Code.Unimplemented) return [];
    throw reason;
  }
}
