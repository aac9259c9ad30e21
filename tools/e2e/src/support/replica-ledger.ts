import { existsSync, readFileSync } from 'node:fs';

interface Entry {
  readonly atMs: number;
  readonly what: string;
  readonly version: string;
  readonly replicaId: string;
}

/**
 * The start and stop records that the servers of `request-app.mjs` wrote themselves, independent of
 * any watch.
 */
export class ReplicaLedger {
  constructor(readonly file: string) {}

  /** Returns the replica ids that have listened as a version, one entry for each start. */
  listStarts(version: string): readonly string[] {
    return this.entries
      .filter((entry) => entry.what === 'up' && entry.version === version)
      .map(({ replicaId }) => replicaId);
  }

  /**
   * Returns the times at which fewer than `floor` replicas served, after at least `floor` had
   * started.
   */
  findDipsBelow(floor: number): readonly string[] {
    const dips: string[] = [];
    const up = new Set<string>();
    let reached = false;
    for (const { atMs, what, version, replicaId } of this.entries) {
      if (what === 'up') up.add(replicaId);
      else up.delete(replicaId);
      reached ||= up.size >= floor;
      if (reached && up.size < floor)
        dips.push(`${up.size} at ${atMs}: ${replicaId} of version ${version} is ${what}`);
    }
    return dips;
  }

  private get entries(): readonly Entry[] {
    if (!existsSync(this.file)) return [];
    const lines = readFileSync(this.file, 'utf8').split('\n').slice(0, -1);
    const entries = lines.map((line): Entry => {
      const [at, what = '', version = '', replicaId = ''] = line.split(' ');
      return { atMs: Number(at), what, version, replicaId };
    });
    return entries.sort((a, b) => a.atMs - b.atMs);
  }
}
