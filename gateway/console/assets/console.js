// The code of the link is in the fragment. It goes into the form, and out of the address and the history.
'use strict';
{
  const form = document.getElementById('login');
  const code = location.hash.slice(1);
  if (form && code) {
    history.replaceState(null, '', location.pathname);
    form.elements.code.value = code;
    form.requestSubmit();
  }
}
