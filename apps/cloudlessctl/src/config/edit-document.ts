import { Document, isMap, parseDocument } from 'yaml';

/**
 * Edits the map of a YAML file and keeps its comments.
 * @param bytes - Content of the file; undefined for a new file.
 * @returns The new content.
 */
export function editDocument(
  bytes: Uint8Array | undefined,
  edit: (document: Document) => void,
): string {
  const document: Document =
    bytes === undefined ? new Document({}) : parseDocument(new TextDecoder().decode(bytes));
  if (!isMap(document.contents))
    document.contents = document.createNode({}) as typeof document.contents;
  edit(document);
  return document.toString();
}
