import { existsSync, readFileSync } from 'node:fs';

/** A line of the ledger. */
interface Entry {
  /** Wall-clock time in milliseconds. */
  readonly atMs: number;
  readonly event: string;
  readonly version: string;
  readonly replicaId: string;
}

/**
 * The starts and stops that the servers of `request-app.mjs` recorded themselves, independent of
 * the coordinator.
 */
export class ReplicaLedger {
  constructor(readonly file: string) {}

  /** Returns the replica id of each start of a version. */
  listStarts(version: string): readonly string[] {
    return this.entries
      .filter((entry) => entry.event === 'up' && entry.version === version)
      .map(({ replicaId }) => replicaId);
  }

  /**
   * Returns a line for each stop that left fewer than `floor` serving replicas, after at least
   * `floor` had started.
   */
  findDipsBelow(floor: number): readonly string[] {
    const dips: string[] = [];
    const up = new Set<string>();
    let reached = false;
    for (const { atMs, event, version, replicaId } of this.entries) {
      if (event === 'up') up.add(replicaId);
      else up.delete(replicaId);
      reached ||= up.size >= floor;
      if (reached && up.size < floor)
        dips.push(`${up.size} at ${atMs}: ${replicaId} of version ${version} is ${event}`);
    }
    return dips;
  }

  private get entries(): readonly Entry[] {
    if (!existsSync(this.file)) return [];
    const lines = readFileSync(this.file, 'utf8').split('\n').slice(0, -1);
    const entries = lines.map((line): Entry => {
      const [at, event = '', version = '', replicaId = ''] = line.split(' ');
      return { atMs: Number(at), event, version, replicaId };
    });
    return entries.sort((a, b) => a.atMs - b.atMs);
  }
}
