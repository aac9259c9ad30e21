/** A workload that a foreign file describes, as the JSON form of a manifest. */
export interface ConvertedWorkload {
  /** Undefined: the namespace of the command line that applies the manifest. */
  readonly namespace: string | undefined;
  readonly name: string;
  readonly spec: Readonly<Record<string, unknown>>;
}
