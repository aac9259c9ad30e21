/** A workload that a foreign file describes, as the JSON form of a manifest. */
export interface ConvertedWorkload {
  readonly kind: 'Workload';
  /** Undefined: the namespace of the command line that applies the manifest. */
  readonly namespace: string | undefined;
  readonly name: string;
  readonly spec: Readonly<Record<string, unknown>>;
}

/** A config that a foreign file describes, with the keys of a manifest beside its name. */
export interface ConvertedConfig {
  readonly kind: 'Config';
  readonly namespace: string | undefined;
  readonly name: string;
  readonly body: Readonly<Record<string, unknown>>;
}

/** An object of the manifest that a foreign file is converted to. */
export type ConvertedObject = ConvertedWorkload | ConvertedConfig;
