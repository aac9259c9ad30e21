import type { Event } from '@cloudless/api';
import { CloudlessError } from '@cloudless/base';

/**
 * Returns an event with its direct and indirect causes and consequences, oldest first.
 * @param events - Sorted by id in ascending order: a cause comes before its consequences.
 * @throws kind `notFound` when the event does not exist, is no longer stored, or is not visible.
 */
export function findRelatedEvents(
  events: readonly Event[],
  id: string,
  isVisible: (event: Event) => boolean,
): readonly Event[] {
  const start = events.find((event) => event.id === id && isVisible(event));
  if (start === undefined)
    throw new CloudlessError(
      'EVENT_NOT_FOUND',
      `event "${id}" not found; it may no longer be stored`,
    );
  const byId = new Map(events.map((event) => [event.id, event]));
  const related = new Set<string>([id]);
  for (
    let event: Event | undefined = byId.get(start.causeId);
    event !== undefined;
    event = byId.get(event.causeId)
  ) {
    if (related.has(event.id)) break;
    related.add(event.id);
  }
  const consequences = new Set<string>([id]);
  for (const event of events) {
    if (!consequences.has(event.causeId)) continue;
    consequences.add(event.id);
    related.add(event.id);
  }
  return events.filter((event) => related.has(event.id));
}
