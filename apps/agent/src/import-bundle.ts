/**
 * Loads a module of this folder that is a bundle of its own, beside the bundle of the caller, or the
 * source when the agent runs from source.
 * @param name - Name of the file without its extension.
 * @returns The exports of the module.
 */
export async function importBundle(name: string): Promise<unknown> {
  const extension = import.meta.url.endsWith('.ts') ? 'ts' : 'mjs';
  return import(new URL(`./${name}.${extension}`, import.meta.url).href);
}
