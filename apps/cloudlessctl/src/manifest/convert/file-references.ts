import { withoutEmpty } from './source-map.js';
import type { ReportNote, SourceMap } from './source-map.js';

/** The kind of object that a reference names. */
type Noun = 'secret' | 'config';

/** The keys of the ConfigMaps and Secrets of the same input, by kind and `namespace/name`. */
export interface ForeignKeys {
  readonly namespace: string;
  readonly config: ReadonlyMap<string, readonly string[]>;
  readonly secret: ReadonlyMap<string, readonly string[]>;
}

/** A key, and where its value goes. */
interface KeyTarget {
  readonly key: string;
  readonly env?: string;
  readonly file?: string;
}

/** A reference of the spec that is being built. A workload names an object only once. */
interface Reference {
  /** True: all keys are files. */
  allFiles: boolean;
  mountPath?: string;
  mode?: number;
  readonly keys: KeyTarget[];
}

/**
 * Collects what a pod uses of secrets and configs: variables and volumes of one object become one
 * reference.
 */
export class FileReferences {
  private readonly references: Readonly<Record<Noun, Map<string, Reference>>> = {
    secret: new Map(),
    config: new Map(),
  };

  constructor(private readonly known: ForeignKeys) {}

  /** Adds a variable with the value of a key. */
  addVariable(noun: Noun, name: string, key: string, env: string): void {
    this.find(noun, name).keys.push({ key, env });
  }

  /**
   * Adds a variable for each key of an object.
   * @returns False when the keys are not known, because the object is not in the input.
   */
  addVariables(noun: Noun, name: string, prefix: string): boolean {
    const keys = this.findKeys(noun, name);
    for (const key of keys ?? []) this.addVariable(noun, name, key, `${prefix}${key}`);
    return keys !== undefined;
  }

  /**
   * Adds the files of a volume.
   * @param items - Keys with their file names; empty: all keys.
   * @returns The reason why the files cannot be mounted; undefined when they are added.
   */
  addFiles(
    noun: Noun,
    name: string,
    {
      mountPath,
      mode,
      items,
    }: {
      readonly mountPath: string;
      readonly mode: number | undefined;
      readonly items: readonly KeyTarget[];
    },
  ): string | undefined {
    const reference = this.find(noun, name);
    if (reference.mountPath !== undefined)
      return `left out: the ${noun} ${name} is mounted at ${reference.mountPath} already`;
    reference.mountPath = mountPath;
    if (mode !== undefined) reference.mode = mode;
    if (items.length === 0) reference.allFiles = true;
    else reference.keys.push(...items);
    return undefined;
  }

  /** Returns the references as lists of the spec, and reports those that need keys of other files. */
  build(report: ReportNote, path: readonly (string | number)[]): Record<string, unknown> {
    const list = (noun: Noun): readonly Record<string, unknown>[] =>
      [...this.references[noun]].map(([name, reference]) =>
        withoutEmpty({
          name,
          mountPath: reference.mountPath,
          mode: reference.mode,
          keys: this.buildKeys(noun, name, reference, (message) => report(path, message)),
        }),
      );
    return { secrets: list('secret'), configs: list('config') };
  }

  private buildKeys(
    noun: Noun,
    name: string,
    { allFiles, keys }: Reference,
    note: (message: string) => void,
  ): readonly KeyTarget[] {
    if (!allFiles || keys.length === 0) return keys;
    const known = this.findKeys(noun, name);
    if (known === undefined)
      note(
        `${noun} ${name}: only the variables were converted; add the keys that become files to keys, because the object is not in this input`,
      );
    return [...(known ?? []).map((key) => ({ key })), ...keys];
  }

  private find(noun: Noun, name: string): Reference {
    const found = this.references[noun].get(name);
    if (found !== undefined) return found;
    const created: Reference = { allFiles: false, keys: [] };
    this.references[noun].set(name, created);
    return created;
  }

  private findKeys(noun: Noun, name: string): readonly string[] | undefined {
    return this.known[noun].get(`${this.known.namespace}/${name}`);
  }
}

/** Takes the volume source `secret` or `configMap` of a pod. */
export function takeFileSource(
  volume: SourceMap,
): { readonly noun: Noun; readonly name: string; readonly source: SourceMap } | undefined {
  if (volume.keys.includes('secret')) {
    const source = volume.takeMap('secret');
    return { noun: 'secret', name: source.takeText('secretName') ?? '', source };
  }
  if (!volume.keys.includes('configMap')) return undefined;
  const source = volume.takeMap('configMap');
  return { noun: 'config', name: source.takeText('name') ?? '', source };
}

/** Takes the items and the permissions of a volume source. */
export function takeFileItems(source: SourceMap): {
  readonly mode: number | undefined;
  readonly items: readonly KeyTarget[];
} {
  const mode = takeMode(source, 'defaultMode');
  const items = source.takeMaps('items').flatMap((item): readonly KeyTarget[] => {
    const key = item.takeText('key') ?? '';
    const path = item.takeText('path') ?? key;
    if (item.takeInteger('mode') !== undefined)
      item.note('mode', 'left out: all files of one object have the same permissions');
    item.finish();
    if (!path.includes('/')) return [path === key ? { key } : { key, file: path }];
    item.note('path', `${path} was left out: files are in one directory`);
    return [];
  });
  if (source.takeFlag('optional') === true)
    source.note('optional', 'left out: the object must exist');
  source.finish();
  return { mode, items };
}

/** Returns permissions that a spec can name; those of Kubernetes by default are left to the default. */
function takeMode(source: SourceMap, key: string): number | undefined {
  const mode = source.takeInteger(key);
  if (mode === undefined || mode === 0o644) return undefined;
  if ([0o400, 0o440, 0o444].includes(mode)) return mode;
  source.note(key, `left out: files have the permissions 0400, 0440 or 0444`);
  return undefined;
}
