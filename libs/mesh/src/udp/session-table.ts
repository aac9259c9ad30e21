/** Share of all sessions that one client address may keep while the table is full. */
const SHARE_OF_ADDRESS = 0.1;

interface Entry<Session> {
  readonly address: string;
  readonly session: Session;
  isAnswered: boolean;
}

/**
 * The UDP sessions of one socket by client, at most a fixed number. When the table is full, a session
 * without an answer makes room first, because a datagram with a forged source never gets one that
 * its sender sees. Among equals, the session that was used least recently makes room.
 */
export class SessionTable<Session> {
  private readonly byKey = new Map<string, Entry<Session>>();
  /** Each set is in the order of the last use. */
  private readonly answered = new Set<Entry<Session>>();
  private readonly unanswered = new Set<Entry<Session>>();
  private readonly byAddress = new Map<string, Set<Entry<Session>>>();

  /** @param maxSessions - At least 1. */
  constructor(private readonly maxSessions: number) {}

  get size(): number {
    return this.byKey.size;
  }

  sessions(): readonly Session[] {
    return [...this.byKey.values()].map(({ session }) => session);
  }

  /** Returns the session of a client that has sent a datagram. */
  use(key: string): Session | undefined {
    const entry = this.byKey.get(key);
    if (entry === undefined) return undefined;
    this.touch(entry);
    return entry.session;
  }

  /** Records that an endpoint has answered a client. */
  noteAnswer(key: string): void {
    const entry = this.byKey.get(key);
    if (entry === undefined) return;
    if (!entry.isAnswered) this.unanswered.delete(entry);
    entry.isAnswered = true;
    this.touch(entry);
  }

  /**
   * Returns the session that must end before a further session of an address; undefined while there
   * is room. An address with more than its share replaces a session of its own.
   */
  findReplaced(address: string): Session | undefined {
    if (this.byKey.size < this.maxSessions) return undefined;
    const own = this.byAddress.get(address);
    if (own !== undefined && own.size >= Math.max(1, this.maxSessions * SHARE_OF_ADDRESS)) {
      for (const entry of own) if (!entry.isAnswered) return entry.session;
      return first(own)?.session;
    }
    return (first(this.unanswered) ?? first(this.answered))?.session;
  }

  add(key: string, address: string, session: Session): void {
    const entry = { address, session, isAnswered: false };
    this.byKey.set(key, entry);
    this.unanswered.add(entry);
    let own = this.byAddress.get(address);
    if (own === undefined) this.byAddress.set(address, (own = new Set()));
    own.add(entry);
  }

  delete(key: string): void {
    const entry = this.byKey.get(key);
    if (entry === undefined) return;
    this.byKey.delete(key);
    this.answered.delete(entry);
    this.unanswered.delete(entry);
    const own = this.byAddress.get(entry.address);
    own?.delete(entry);
    if (own?.size === 0) this.byAddress.delete(entry.address);
  }

  private touch(entry: Entry<Session>): void {
    moveToEnd(entry.isAnswered ? this.answered : this.unanswered, entry);
    const own = this.byAddress.get(entry.address);
    if (own !== undefined) moveToEnd(own, entry);
  }
}

function moveToEnd<Item>(items: Set<Item>, item: Item): void {
  items.delete(item);
  items.add(item);
}

function first<Item>(items: ReadonlySet<Item>): Item | undefined {
  return items.values().next().value;
}
