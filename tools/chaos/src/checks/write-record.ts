/** One acknowledged write of a workload's spec. */
export interface Acknowledgement {
  /** Generation of the workload in the answer. */
  readonly generation: bigint;
  /** Value that the write set. */
  readonly value: string;
}

/** Everything that clients know about the writes of one workload. */
export interface WriteRecord {
  readonly name: string;
  readonly acknowledged: readonly Acknowledgement[];
  /** Number of writes that clients gave up without knowing the result. */
  readonly unknown: number;
}

/** The workload as the cluster has it at the end. */
export interface FinalState {
  readonly generation: bigint;
  readonly value: string;
}

/** Writes that are missing, and writes that took effect twice, one text for each. */
export interface WriteFaults {
  readonly lost: readonly string[];
  readonly twice: readonly string[];
}

/**
 * Compares the acknowledged writes of one workload with the workload at the end. The creation has
 * generation 1, and each write increments the generation, so that with no unknown write the
 * acknowledged generations are exactly those from 1 to the last.
 * @param final - Undefined: the workload does not exist.
 */
export function findWriteFaults(record: WriteRecord, final: FinalState | undefined): WriteFaults {
  const { name, unknown } = record;
  const answers = [...record.acknowledged].sort((a, b) => Number(a.generation - b.generation));
  const lost: string[] = [];
  const twice: string[] = [];
  const last = answers.at(-1);
  if (final === undefined) {
    if (last !== undefined) lost.push(`${name} does not exist after ${answers.length} writes`);
    return { lost, twice };
  }
  for (const [index, { generation, value }] of answers.entries()) {
    if (index > 0 && generation === answers[index - 1]?.generation)
      lost.push(`${name}: two writes were answered with generation ${generation}, one is ${value}`);
  }
  if (last !== undefined && final.generation < last.generation)
    lost.push(`${name} has generation ${final.generation} after an answer with ${last.generation}`);
  if (last?.generation === final.generation && last.value !== final.value)
    lost.push(`${name} has the value ${final.value}; the last write set ${last.value}`);
  const extra = final.generation - BigInt(new Set(answers.map((each) => each.generation)).size);
  if (extra > BigInt(unknown)) {
    const known = `${answers.length} acknowledged and ${unknown} unknown writes`;
    twice.push(`${name} has generation ${final.generation} after ${known}`);
  }
  return { lost, twice };
}
