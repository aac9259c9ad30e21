import type { Event } from '@cloudless/api';
import { nameKeyId } from './records.js';

/** The workload or node that an event is about as a whole. */
export type EventSubject =
  | { readonly kind: 'workload'; readonly namespace: string; readonly name: string }
  | { readonly kind: 'node'; readonly nodeId: string };

/**
 * Index of the newest events, so that a new event can name its cause: one event for each replica
 * with a record, and one for each reason about a workload or node.
 */
export class EventIndex {
  private readonly byReplica = new Map<string, Event>();
  private readonly bySubject = new Map<string, Event>();

  lastOfReplica(replicaId: string): Event | undefined {
    return this.byReplica.get(replicaId);
  }

  last(subject: EventSubject, reasons: readonly string[]): Event | undefined {
    const key = keyOf(subject);
    const found = reasons.flatMap((reason) => this.bySubject.get(`${reason} ${key}`) ?? []);
    return found.reduce<Event | undefined>(
      (newest, event) => (newest === undefined || event.id > newest.id ? event : newest),
      undefined,
    );
  }

  /** Applies a change of one event. */
  take(before: Event | undefined, after: Event | undefined): void {
    if (after !== undefined) this.add(after);
    else if (before !== undefined) this.remove(before);
  }

  /** Removes a replica whose record was deleted. */
  forgetReplica(replicaId: string): void {
    this.byReplica.delete(replicaId);
  }

  private add(event: Event): void {
    for (const id of replicasIn(event)) keepNewest(this.byReplica, id, event);
    const key = subjectKeyOf(event);
    if (key !== undefined) keepNewest(this.bySubject, key, event);
  }

  private remove(event: Event): void {
    for (const id of replicasIn(event)) dropSame(this.byReplica, id, event);
    const key = subjectKeyOf(event);
    if (key !== undefined) dropSame(this.bySubject, key, event);
  }
}

/** Ids of all replicas that an event is about. */
export function replicasOf({ replicaId, replicaIds }: Event): readonly string[] {
  return replicaIds.length > 0 ? replicaIds : replicaId === '' ? [] : [replicaId];
}

/**
 * Ids of the replicas that an event may be the last event of. None for audit events, which are
 * causes only of the event beside them.
 */
function replicasIn(event: Event): readonly string[] {
  return event.audit === undefined ? replicasOf(event) : [];
}

function keyOf(subject: EventSubject): string {
  return subject.kind === 'workload'
    ? `workload ${nameKeyId(subject.namespace, subject.name)}`
    : `node ${subject.nodeId}`;
}

/** The index key of an event; undefined for events about single replicas and for audit events. */
function subjectKeyOf(event: Event): string | undefined {
  if (event.audit !== undefined) return undefined;
  const { reason, namespace, workload, nodeId } = event;
  if (workload !== '') {
    return event.replicaId === ''
      ? `${reason} ${keyOf({ kind: 'workload', namespace, name: workload })}`
      : undefined;
  }
  return nodeId === '' ? undefined : `${reason} ${keyOf({ kind: 'node', nodeId })}`;
}

function keepNewest(map: Map<string, Event>, key: string, event: Event): void {
  const known = map.get(key);
  if (known === undefined || known.id <= event.id) map.set(key, event);
}

function dropSame(map: Map<string, Event>, key: string, event: Event): void {
  if (map.get(key)?.id === event.id) map.delete(key);
}
